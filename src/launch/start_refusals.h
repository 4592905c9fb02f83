// Which hosts cannot take part in a job, and why: one cause is said once. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace rueda::launch {

// The text with "…" in place of the host's name and of IPv4 addresses: equal for hosts with one cause.
std::string without_host(const std::string& text, const std::string& host);

struct Refusal {
  std::string host;
  std::string before, after;  // the sentence about it: before + host + after
  std::string aside{};        // said behind that if no other host has the cause
};

// "the agent of b has ended: no route; 39 hosts (h1, h2, h3 and 36 more): the agent of … has ended: ssh:
// connect to host … port 22: Connection refused". Causes are equal if only the names and addresses of hosts
// differ.
std::string list_refusals(std::span<const Refusal> refusals);

}  // namespace rueda::launch
