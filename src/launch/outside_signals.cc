#include "launch/outside_signals.h"

#include <csignal>

#include "launch/stop_plan.h"

namespace rueda::launch {
namespace {

// What comes by several ways within this time is one event.
constexpr Nanos kSameEvent = 2 * kSecond;

bool is_recent(const std::optional<Nanos>& at, Nanos now) { return at && now - *at < kSameEvent; }

}  // namespace

bool ends_job(int signal) { return signal == SIGTERM || signal == SIGINT || signal == SIGHUP; }

bool informs_ranks(int signal) { return signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGXCPU; }

OutsideSignals::Answer OutsideSignals::on_spread(int signal, int sender, Nanos now) {
  Last& last = last_[signal];
  last.spread_by = sender;
  last.own = now;
  return {.is_new = !is_recent(last.launcher, now), .goes_to_ranks = false};
}

OutsideSignals::Answer OutsideSignals::on_own(int signal, int sender, Way way, Nanos now) {
  Last& last = last_[signal];
  const bool has_spread = last.spread_by == sender && is_recent(last.own, now);
  if (last.half_by != sender || !is_recent(last.own, now)) last.halves = 0;
  const bool is_other_half = last.halves > 0 && last.half_way != way;
  last.spread_by = 0;
  if (is_other_half) --last.halves;
  if (has_spread || is_other_half || is_recent(last.launcher, now)) return {};
  last.own = now;
  ++last.halves;
  last.half_by = sender;
  last.half_way = way;
  return {.is_new = true, .goes_to_ranks = true};
}

bool OutsideSignals::on_launcher(int signal, Nanos now) {
  Last& last = last_[signal];
  if (is_recent(last.own, now)) return false;
  last.launcher = now;
  return true;
}

void ReportedSignals::on_report(int host, int signal, Nanos now) {
  if (const auto sent = sent_.find(signal); sent != sent_.end() && now - sent->second < kSameEvent) return;
  Open& open = open_[signal];
  if (open.told.empty()) open.at = now + kTellingTakes;
  open.told.insert(host);
}

std::vector<ReportedSignals::Round> ReportedSignals::due(Nanos now) {
  std::vector<Round> rounds;
  for (auto entry = open_.begin(); entry != open_.end();) {
    if (now < entry->second.at) {
      ++entry;
      continue;
    }
    rounds.push_back({.signal = entry->first, .told = std::move(entry->second.told)});
    sent_[entry->first] = now;
    entry = open_.erase(entry);
  }
  return rounds;
}

Nanos ReportedSignals::next() const {
  Nanos next = 0;
  for (const auto& [signal, open] : open_)
    if (next == 0 || open.at < next) next = open.at;
  return next;
}

}  // namespace rueda::launch
