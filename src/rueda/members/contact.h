// How the members of an elastic job without a launcher reach one another's processes: over the store that
// each of them serves, and, on one host, by its pid.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"

namespace rueda::members {

constexpr Nanos kEnding = 5 * kSecond;  // from a SIGKILL to the end of the process

struct Contact {
  std::string address;  // where its store listens
  int port = 0;
  int64_t pid = 0, began = 0;  // as in base/process.h
  int64_t pids = 0;            // pids_of_here() of the process
  bool operator==(const Contact&) const = default;
};

// Text: it is the field `contact` of a member. Pure.
std::string to_text(const Contact& contact);
Result<Contact> parse_contact(std::string_view text);

// Equal for processes that can find one another by their pids: of one machine, since it was started, and of
// one pid namespace. 0: unknown.
int64_t pids_of_here();
bool shares_pids(const Contact& contact);
// Whether it is certain that the process has ended, with all its threads. False for one of another host.
bool has_ended(const Contact& contact);
// Whether it is seen here that it lives, and is not stopped by a signal.
bool is_at_work(const Contact& contact);
// Ends the process and waits until it has ended.
Status end_process(const Contact& contact, Nanos at_most);

}  // namespace rueda::members
