// How the members of an elastic job without a launcher reach one another's processes: over the store that
// each of them serves, and, on one host, by its pid.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"

namespace rueda::members {

struct Contact {
  std::string address;  // where its store listens
  int port = 0;
  int64_t pid = 0, began = 0, pid_space = 0;  // as in base/process.h
  bool operator==(const Contact&) const = default;
};

// Text: it is the field `contact` of a member. Pure.
std::string to_text(const Contact& contact);
Result<Contact> parse_contact(std::string_view text);

// Whether this process can find that one by its pid. A process of another host may have an equal pid space by
// chance, so ask only about one of this host.
bool shares_pids(const Contact& contact);
// Whether it is certain that the process, which is on this host, has ended, with all its threads.
bool has_ended(const Contact& contact);
// Ends the process, which is on this host, and waits until it has ended.
Status end_process(const Contact& contact, Nanos at_most);

// Sleeps.
void rest_for(Nanos time);

}  // namespace rueda::members
