// The sentences of verdicts: what was seen, and what to do.
#include <array>
#include <cstdio>
#include <string>

#include "rueda/base/check.h"
#include "rueda/base/stopped.h"
#include "rueda/control/mismatch.h"
#include "rueda/control/verdict.h"

namespace rueda::control {
namespace {

std::string seconds(Nanos duration) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", static_cast<double>(duration) / kSecond);
  return text.data();
}

std::string use_of(const Verdict& verdict) {
  return verdict.core_percent < 0 ? "" : std::to_string(verdict.core_percent) + " % of a core";
}

// What the others wait for, as the end of a sentence.
std::string wait_of(const Verdict& verdict) {
  const bool is_one = verdict.waiting.size() == 1;
  return "has not submitted " + verdict.tensor + ", in which " + rank_list(verdict.waiting) +
         (is_one ? " has" : " have") + " waited for " + seconds(verdict.age);
}

std::string times_of(const Verdict& verdict) {
  return std::to_string(verdict.times) + " times in " + seconds(verdict.lasted) + ", for " +
         seconds(verdict.waited) + " in all";
}

std::string waits_of_slow(const Verdict& verdict) {
  const auto percent = verdict.age > 0 ? verdict.waited * 100 / verdict.age : 0;
  return "most others have waited for it for " + std::to_string(percent) + " % of the last " +
         seconds(verdict.age) + ", in waits too short for another verdict";
}

// The rank at fault, or the ends of a link.
std::string subject_of(const Verdict& verdict, const std::function<std::string(Rank)>& who) {
  if (verdict.fault != Fault::kCutLink) return who(verdict.rank);
  return who(verdict.rank) + " and " + who(verdict.other_end);
}

std::string lost_after() {
  return "; training goes on if this ends before RUEDA_PEER_TIMEOUT_SECONDS have passed";
}

std::string end_of_stopped(const Verdict& verdict) {
  if (!verdict.is_ended_soon) return "RUEDA_PEER_TIMEOUT_SECONDS it counts as lost";
  return std::to_string(kElasticStoppedTime / kSecond) +
         " s rueda run ends it, because the job is elastic and goes on without it";
}

std::string text_of(const Verdict& verdict) {
  switch (verdict.fault) {
    case Fault::kStopped:
      return "its process has been stopped by a signal for " + seconds(verdict.age) +
             "; `kill -CONT` with its pid continues it, and after " + end_of_stopped(verdict);
    case Fault::kDebugger:
      return "a debugger has held its process for " + seconds(verdict.age) +
             "; after RUEDA_PEER_TIMEOUT_SECONDS it counts as lost";
    case Fault::kSilent:
      return "it has not answered for " + seconds(verdict.age) +
             ", although its host does; its process is stopped, its machine is overloaded or swapping" +
             lost_after();
    case Fault::kUnreachable:
      return "its host has acknowledged nothing for " + seconds(verdict.age) +
             ": it is down, or the network to it is cut" + std::string(what_agent_tells(verdict.agent)) +
             lost_after();
    case Fault::kMissing:
      return "it " + wait_of(verdict) + ", and it hardly computes (" + use_of(verdict) +
             "): it sleeps, waits for something else, or never submits this tensor";
    case Fault::kOrder:
      return "it waits in " + verdict.other + " and " + wait_of(verdict) +
             ": the ranks submit collectives in opposite order or under different names, or one left a "
             "collective out";
    case Fault::kLateInCompute:
      return "it " + wait_of(verdict) + ", and it computes (" + use_of(verdict) +
             "); training goes on when it comes";
    case Fault::kLateInInput:
      return "it " + wait_of(verdict) + ", and it waits for its next batch; training goes on when that comes";
    case Fault::kSwapping:
      return "it " + wait_of(verdict) +
             ", and it reads its memory back from swap; its machine needs more memory";
    case Fault::kSlow:
      return waits_of_slow(verdict) + (verdict.core_percent < 0 ? "" : ", and it uses " + use_of(verdict)) +
             "; `rueda timeline record` and `rueda timeline summary` say why";
    case Fault::kNotFinite:
      return "it submits NaN or infinity in " + verdict.tensor + ", first in element " +
             std::to_string(verdict.element) + "; the results of all ranks have it now";
    case Fault::kCutLink:
      return "their hosts have acknowledged nothing to each other for " + seconds(verdict.age) +
             ", and both answer; look at the network between them" + lost_after();
  }
  RUEDA_CHECK(false, "every fault has a text");
}

std::string later_ones() {
  static_assert(kSaidOften == 3);
  return "; this is the third time in " + seconds(kOftenWithin) +
         ", so the next is said only if it lasts for " + seconds(kSaidIfItLasts);
}

}  // namespace

std::string_view name_of(Fault fault) {
  static constexpr std::array<std::string_view, 12> kNames = {
      "stopped",         "in a debugger", "silent",   "unreachable", "missing",         "opposite order",
      "late in compute", "late in input", "swapping", "slow",        "NaN or infinity", "cut link"};
  return kNames.at(static_cast<size_t>(fault));
}

std::string_view what_agent_tells(Agent agent) {
  switch (agent) {
    case Agent::kAnswers:
      return "; the agent of that host answers rueda run, so the host is up and the network between the "
             "ranks is "
             "cut";
    case Agent::kSilent:
      return "; the agent of that host does not answer rueda run either";
    case Agent::kUnknown:
      break;
  }
  return "";
}

bool is_explained_by_stacks(const Verdict& verdict) {
  switch (verdict.fault) {
    case Fault::kMissing:
    case Fault::kOrder:
    case Fault::kLateInCompute:
    case Fault::kLateInInput:
    case Fault::kSwapping:
      return !verdict.is_over;
    case Fault::kStopped:
    case Fault::kDebugger:
    case Fault::kSilent:
    case Fault::kUnreachable:
    case Fault::kSlow:
    case Fault::kNotFinite:
    case Fault::kCutLink:
      break;
  }
  return false;
}

std::string verdict_line(const Verdict& verdict, const std::function<std::string(Rank)>& who) {
  const std::string head =
      "Verdict: " + std::string(name_of(verdict.fault)) + ": " + subject_of(verdict, who);
  const std::string so_far = verdict.times > 1 ? "others have waited for it " + times_of(verdict) : "";
  if (!verdict.is_over)
    return head + ": " + (so_far.empty() ? "" : so_far + "; ") + text_of(verdict) +
           (verdict.is_last_for_now ? later_ones() : "") + ".";
  if (verdict.fault == Fault::kSlow) return head + " is no longer slow, after " + seconds(verdict.age) + ".";
  if (!so_far.empty()) return head + " is no longer late: " + so_far + ".";
  if (verdict.fault == Fault::kUnreachable || verdict.fault == Fault::kCutLink)
    return head + ": the network is back after " + seconds(verdict.age) + ".";
  return head + " goes on after " + seconds(verdict.age) + ".";
}

}  // namespace rueda::control
