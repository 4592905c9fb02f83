// What rank 0 says about a rank for which others wait, or about a link: the class of the fault, and the
// sentence. docs/verdicts.md lists the classes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"

namespace rueda::control {

enum class Fault : uint8_t {
  // of a process
  kStopped,
  kDebugger,
  kSilent,       // it does not answer, its host does, and nobody knows why
  kUnreachable,  // its host acknowledges nothing
  // of a rank that answers and for which others wait
  kMissing,
  kOrder,  // it waits in one collective, and those that wait there for it wait in another
  kLateInCompute,
  kLateInInput,
  kSwapping,
  kSlow,  // in step after step, without a long wait
  // of numbers
  kNotFinite,
  // of a network
  kCutLink,  // two hosts acknowledge nothing to each other, and both answer rank 0
};
std::string_view name_of(Fault fault);  // "late in compute"

// Whether the agent of a host, which `rueda run` has started there, answers the launcher.
enum class Agent : uint8_t { kUnknown, kAnswers, kSilent };
// What follows for a host that acknowledges nothing to other ranks: the end of a sentence, or "".
std::string_view what_agent_tells(Agent agent);

// What goes on is said again after so long.
inline constexpr Nanos kSaidAgainAfter = 300 * kSecond;
// What happens to the process of a rank again and again is said so often within this time, and then only if
// it lasts.
inline constexpr size_t kSaidOften = 3;
inline constexpr Nanos kOftenWithin = kSaidAgainAfter, kSaidIfItLasts = 10 * kSecond;

struct Verdict {
  Fault fault = Fault::kMissing;
  Rank rank = 0;
  bool is_over = false;            // what was said before no longer holds
  Nanos age = 0;                   // for so long; if it is over, for so long it has held
  std::string tensor = {};         // for which others wait; empty: not known to wait
  std::string other = {};          // kOrder: the tensor in which the rank waits
  std::vector<Rank> waiting = {};  // the ranks that wait for it
  int64_t times = 1;               // so often others have waited for it since that was first said
  Nanos lasted = 0;                // times > 1: from the begin of the first of these waits to now
  Nanos waited = 0;                // times > 1: in all of them; kSlow: of `age`, at least
  bool is_last_for_now = false;    // kStopped, kDebugger, kSilent: said so often that the next are left out
  int64_t element = 0;             // kNotFinite: the first that is none
  int core_percent = -1;           // CPU time that it uses, of one core; -1: not known
  Agent agent = Agent::kUnknown;   // kUnreachable: of its host
  bool is_ended_soon = false;      // kStopped: by the launcher of an elastic job
  Rank other_end = -1;             // kCutLink: the two hosts, each named by its first rank: `rank` and this
};
// Whether the stacks of the rank say more: it runs, and others wait for it.
bool is_explained_by_stacks(const Verdict& verdict);
// One line: class, rank, tensor, and what to do. who: a rank, as people know it: "rank 3 (host b, pid 4711)".
std::string verdict_line(const Verdict& verdict, const std::function<std::string(Rank)>& who);

}  // namespace rueda::control
