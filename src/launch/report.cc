#include "launch/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <set>
#include <span>

#include "launch/blame.h"
#include "launch/last_words.h"
#include "launch/start_refusals.h"

namespace rueda::launch {
namespace {

double seconds(Nanos duration) { return static_cast<double>(duration) / kSecond; }

FailureClass failure_class_in(const Ending& ending) {
  const bool has_words = ending.signal == 0 && ending.trouble.empty();
  return has_words ? failure_class_of(ending.last_lines) : FailureClass::kNone;
}

// Whether a rank failed because of another one, as its last lines say. A rank that raises an exception waits
// for the others before it exits, so the ranks that fail because of it often end before it does. Ranks that
// disagree all raise the same sentence, those that it names as well.
bool is_victim(const Ending& ending) {
  const FailureClass failure_class = failure_class_in(ending);
  if (failure_class != FailureClass::kMismatch) return failure_class != FailureClass::kNone;
  return blames_any(ending.last_lines) && !blames(ending.last_lines, ending.rank);
}

// A sentence that explains a signal or an exit code; "" if there is nothing to explain.
std::string explanation(const Ending& ending) {
  if (!ending.trouble.empty()) return {};
  if (ending.signal == SIGKILL) {
    if (!ending.was_out_of_memory)
      return "SIGKILL comes from outside: from the kernel's out-of-memory killer (see dmesg), a batch system "
             "or a person.";
    if (*ending.was_out_of_memory)
      return "The kernel's out-of-memory killer struck: the oom_kill counter of its cgroup rose. Use less "
             "memory per rank or fewer ranks per host.";
    return "Somebody killed it: the oom_kill counter of its cgroup did not rise, so it was not the kernel's "
           "out-of-memory killer.";
  }
  if (ending.signal == SIGBUS) return "SIGBUS often means that /dev/shm is full.";
  if (ending.signal == 0 && ending.exit_code > 128 && ending.exit_code <= 128 + SIGRTMAX)
    return fmt::format("Shells exit with code {} after {}{}", ending.exit_code,
                       signal_name(ending.exit_code - 128),
                       ending.exit_code == 137 ? " (out of memory?)." : ".");
  return {};
}

std::string collateral_of(const Ending& ending) {
  if (!ending.is_failure()) return "ended well";
  if (!ending.trouble.empty()) return ending.trouble;
  if (ending.was_stopped)
    return ending.signal != 0 ? fmt::format("stopped by rueda ({})", signal_name(ending.signal))
                              : fmt::format("stopped by rueda (exit code {})", ending.exit_code);
  return what_happened(ending);
}

std::string of_several(std::string words) {
  constexpr std::string_view kOfOne = "was ", kOfSeveral = "were ", kItsHost = " with its host";
  if (!words.starts_with(kOfOne)) return words;
  words.replace(0, kOfOne.size(), kOfSeveral);
  const size_t host = words.find(kItsHost);
  return host == std::string::npos ? words : words.replace(host, kItsHost.size(), " with their hosts");
}

std::string collateral_lines(std::span<const Ending> endings, size_t cause) {
  struct Group {
    std::vector<Rank> ranks;
    std::set<std::string> words;  // more than one: only the names of hosts differ
  };
  std::map<std::string, Group> groups;
  for (size_t i = 0; i < endings.size(); ++i) {
    if (i == cause) continue;
    const std::string words = collateral_of(endings[i]);
    Group& group = groups[without_host(words, endings[i].host)];
    group.ranks.push_back(endings[i].rank);
    group.words.insert(words);
  }
  std::string text;
  for (auto& [masked, group] : groups) {
    std::ranges::sort(group.ranks);
    const std::string words = group.words.size() == 1 ? *group.words.begin() : masked;
    const bool is_one = group.ranks.size() == 1;
    text += fmt::format("  {} {}: {}\n", is_one ? "rank" : "ranks", rank_list(group.ranks),
                        is_one ? words : of_several(words));
  }
  return text;
}

std::string after(const Ending& ending) {
  return ending.pid > 0 ? fmt::format(" after {:.1f} s", std::max(0.0, seconds(ending.at))) : "";
}

// "rank 1 on h1 (pid 7) exited with code 1 after 3.0 s", and "… was lost with its host after 3.0 s: REASON".
std::string describe_and_when(const Ending& ending) {
  std::string text = describe(ending);
  const size_t reason = std::min(ending.trouble.find(": "), ending.trouble.size());
  const size_t before = ending.trouble.empty() ? text.size() : text.size() - ending.trouble.size() + reason;
  return text.insert(before, after(ending));
}

// The rank that a victim names as the one it could not go on without, or that differs from most. It has ended
// well, or it was stopped at the end because it did not answer or went on.
std::optional<size_t> culprit_of(const Ending& victim, std::span<const Ending> endings) {
  if (!is_victim(victim)) return std::nullopt;
  for (size_t i = 0; i < endings.size(); ++i) {
    if (endings[i].is_failure() && !endings[i].was_stopped) continue;
    if (blames(victim.last_lines, endings[i].rank)) return i;
  }
  return std::nullopt;
}

// What ranks agree on that all failed because of others. A rank that ended well has left too early: that is
// another story.
std::optional<Blame> blame_by(const Ending& first, std::span<const Ending> endings) {
  const FailureClass failure_class = failure_class_in(first);
  if (failure_class != FailureClass::kLost && failure_class != FailureClass::kCut) return std::nullopt;
  const std::optional<Blame> blame = agreed_blame(endings);
  if (!blame || blame->other >= 0) return blame;
  const auto ended_well = [&](const Ending& one) { return one.rank == blame->rank && !one.is_failure(); };
  return std::ranges::any_of(endings, ended_well) ? std::nullopt : blame;
}

std::string who(std::span<const Ending> endings, Rank rank) {
  const auto found = std::ranges::find(endings, rank, &Ending::rank);
  return found == endings.end() ? fmt::format("rank {}", rank)
                                : fmt::format("rank {} on {} (pid {})", rank, found->host, found->pid);
}

std::string headline(const Blame& blame, std::span<const Ending> endings) {
  const std::string one = who(endings, blame.rank);
  switch (blame.kind) {
    case Blame::Kind::kRank:
      break;
    case Blame::Kind::kCutOff:
      return one +
             " was cut off from the other hosts while it was still running; look at the network of its "
             "host";
    case Blame::Kind::kCutLink:
      return fmt::format("the network between {} and {} was cut while both were running", one,
                         who(endings, blame.other));
    case Blame::Kind::kUnconnected:
      return fmt::format("{} could not connect to {}", one, who(endings, blame.other));
  }
  return one + " was lost to the other ranks while it was still running";
}

std::string headline(const Ending& first, const Ending* culprit) {
  const FailureClass failure_class = failure_class_in(first);
  if (culprit == nullptr) {
    const std::string text = describe_and_when(first);
    if (failure_class != FailureClass::kMismatch) return text;
    if (blames_any(first.last_lines)) return text + ", because it disagrees with most ranks about a tensor";
    return "its ranks disagree about a tensor, and no side has more of them; " + text;
  }
  const std::string name = who(std::span(culprit, 1), culprit->rank);
  if (failure_class == FailureClass::kMismatch) return name + " disagrees with most ranks about a tensor";
  if (!culprit->was_stopped) return describe_and_when(*culprit) + ", while other ranks still needed it";
  if (failure_class == FailureClass::kStalled)
    return name + " never submitted what the other ranks waited for";
  return name + " was lost to the other ranks while it was still running";
}

}  // namespace

std::optional<size_t> first_cause(std::span<const Ending> endings) {
  std::optional<size_t> best;
  const auto key = [](const Ending& e) {
    return std::make_tuple(e.was_stopped, is_victim(e), e.at, e.signal == 0, e.rank);
  };
  for (size_t i = 0; i < endings.size(); ++i)
    if (endings[i].is_failure() && (!best || key(endings[i]) < key(endings[*best]))) best = i;
  if (!best || endings[*best].was_stopped) return best;
  const std::optional<Blame> blame = blame_by(endings[*best], endings);
  return blame ? blame->spokesman : best;
}

int job_exit_status(std::span<const Ending> endings, int interrupt) {
  const std::optional<size_t> cause = first_cause(endings);
  if (interrupt != 0 && (!cause || endings[*cause].was_stopped)) return 128 + interrupt;
  return cause ? exit_status(endings[*cause]) : 0;
}

std::string verdict_report(const std::string& verdict, std::span<const Ending> endings) {
  return fmt::format("rueda: the job failed: {}\n{}  exit status 1\n", verdict,
                     collateral_lines(endings, endings.size()));
}

std::string failure_report(std::span<const Ending> endings, int interrupt) {
  const std::optional<size_t> cause = first_cause(endings);
  if (interrupt != 0 && (!cause || endings[*cause].was_stopped))
    return fmt::format("rueda: the job was stopped by {}\n", signal_name(interrupt)) +
           collateral_lines(endings, endings.size());
  if (!cause) return {};
  const Ending& first = endings[*cause];
  const std::optional<Blame> blame = blame_by(first, endings);
  const std::optional<size_t> culprit = blame ? std::nullopt : culprit_of(first, endings);
  std::string text = "rueda: the job failed: ";
  text += blame ? headline(*blame, endings) : headline(first, culprit ? &endings[*culprit] : nullptr);
  text += "\n";
  if (const std::string why = explanation(first); !why.empty()) text += "  " + why + "\n";
  if (culprit || blame) text += fmt::format("  rank {} failed because of this{}\n", first.rank, after(first));
  if (!first.last_lines.empty()) {
    text += fmt::format("  last lines of its {}:\n", first.stream);
    for (const std::string& line : first.last_lines) text += "  | " + line + "\n";
  }
  if (!first.log_path.empty()) text += "  log: " + first.log_path + "\n";
  text += collateral_lines(endings, *cause);
  text += fmt::format("  exit status {}\n", job_exit_status(endings, interrupt));
  return text;
}

}  // namespace rueda::launch
