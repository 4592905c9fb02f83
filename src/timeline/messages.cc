#include "timeline/messages.h"

#include <array>

#include "timeline/units.h"

namespace rueda::timeline {
namespace {

constexpr Nanos kRateWindow = 10 * kMillisecond;

constexpr size_t kMaxMessages = 4u << 20;  // beyond, messages have no arrows

}  // namespace

uint64_t SentTimes::arrow_of(Rank rank, const Span& message) const {
  const bool is_sent = message.kind == SpanKind::kSent;
  const auto from = static_cast<uint64_t>(is_sent ? rank : message.peer);
  const auto to = static_cast<uint64_t>(is_sent ? message.peer : rank);
  auto mixed = static_cast<uint64_t>(epoch_);
  for (const uint64_t part : {uint64_t{message.call}, uint64_t{message.number}, from << 32 | to}) {
    mixed = (mixed ^ part) * 0x9E3779B97F4A7C15u;
    mixed ^= mixed >> 29;
  }
  return mixed | 1;  // 0 would be none
}

void SentTimes::add(Rank rank, const Span& message, Nanos begin) {
  if (message.kind == SpanKind::kSent && begins_.size() < kMaxMessages)
    begins_.insert_or_assign(arrow_of(rank, message), begin);
}

void SentTimes::forget(Rank rank, const Span& message) {
  if (message.kind == SpanKind::kSent) begins_.erase(arrow_of(rank, message));
}

Nanos SentTimes::of(Rank rank, const Span& message) const {
  const auto at = begins_.find(arrow_of(rank, message));
  return at == begins_.end() ? 0 : at->second;
}

void Messages::add(const Span& message, Nanos begin, Nanos end) {
  const bool is_sent = message.kind == SpanKind::kSent;
  const Nanos sent = is_sent ? begin : sent_.of(rank_, message);
  const bool has_arrow = sent != 0 && sent <= end;
  if (has_arrow) begin = std::max(begin, sent);
  const Row row{.kind = is_sent ? Row::Kind::kSent : Row::Kind::kReceived,
                .lane = lanes_[{message.kind, message.peer}].take(begin, end),
                .peer = message.peer};
  const auto time = static_cast<double>(std::max<Nanos>(end - begin, 1));
  const auto per_second = static_cast<int64_t>(static_cast<double>(message.value) * 1e9 / time);
  const std::array<Detail, 4> details = {{{"bytes", message.value},
                                          {"bytes per second", per_second},
                                          {"order of its call", message.call & 0xFFFFFF},
                                          {"number in its call", message.number}}};
  Arrows arrows{.starting = {}, .ending = 0, .name = "message"};
  if (is_sent) arrows.starting = {sent_.arrow_of(rank_, message)};
  if (!is_sent && has_arrow) arrows.ending = sent_.arrow_of(rank_, message);
  writer_.set_arrows(std::move(arrows));
  writer_.slice(row, size_text(message.value), begin, end, details);
  if (is_sent) count(message.value, end);
}

// Bytes count when their message is complete.
void Messages::count(int64_t bytes, Nanos end) {
  if (end >= window_) {
    finish();
    window_ = end + kRateWindow;
  }
  bytes_ += bytes;
}

void Messages::finish() {
  if (window_ == 0) return;
  writer_.counter(Counter::kSentRate, window_ - kRateWindow, bytes_ * (kSecond / kRateWindow));
  writer_.counter(Counter::kSentRate, window_, 0);
  bytes_ = 0;
}

}  // namespace rueda::timeline
