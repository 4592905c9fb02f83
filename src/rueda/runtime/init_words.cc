#include "rueda/runtime/init_words.h"

#include <algorithm>
#include <charconv>

#include "rueda/base/log.h"

namespace rueda::runtime {
namespace {

constexpr std::string_view kOpen = " open";
constexpr std::string_view kEcho = "another rank could not initialize: ";

}  // namespace

Announced parse_announced(std::string_view text) {
  Announced announced;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), announced.number);
  announced.is_open = error == std::errc() && text.substr(static_cast<size_t>(end - text.data())) == kOpen;
  return announced;
}

std::string open_exchange(Epoch number) { return std::to_string(number) + std::string(kOpen); }

std::string closed_exchange(Epoch number) { return std::to_string(number) + " closed"; }

std::string prefix_of(Epoch number) { return "init" + std::to_string(number) + "/"; }

std::string failed_key_of(std::string_view prefix) { return std::string(prefix) + "failed"; }

Deadline within(Deadline deadline, Nanos at_most) {
  return Deadline::at(std::min(deadline.when(), monotonic_now() + at_most));
}

std::optional<store::EndedRank> find_ended(store::Store& store, Rank size, Deadline deadline) {
  const Result<std::string> text = store.try_get_shared(store::kEndedKey, kInitLook, deadline);
  const auto ended = text.is_ok() ? store::parse_ended(text.value()) : std::nullopt;
  return ended && ended->size == size ? ended : std::nullopt;
}

Status never_came(const store::EndedRank& ended) {
  return {Code::kUnavailable, ended.how +
                                  ", so it does not take part in this init; its output may say why. Every "
                                  "rank has to call init."};
}

Status left_early(const store::EndedRank& ended) {
  return {Code::kUnavailable, ended.how +
                                  " before all ranks were connected, so this init failed; its output may say "
                                  "why."};
}

Status rank_0_has_ended(const Status& here) {
  return {
      Code::kPeerLost,
      "rank 0, which serves the store of this init, has ended; its output may say why. Here: " + here.why};
}

Status echo_of(const std::string& first) { return {Code::kUnavailable, std::string(kEcho) + first}; }

std::optional<std::string> told_by_another(const Status& why) {
  if (!why.why.starts_with(kEcho)) return std::nullopt;
  return why.why.substr(kEcho.size());
}

Status cause_of(const Status& has_ended, store::Store& store, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const Result<std::string> told = store.try_get(key, Deadline::after(kInitTell));
    if (told.is_ok()) return echo_of(told.value());
  }
  return has_ended;
}

void log_failure(const Status& status) {
  if (!status.is_ok()) RUEDA_LOG(kDebug, status.why);
}

}  // namespace rueda::runtime
