// The messages of one rank in a trace: a row for each peer and direction, an arrow from the slice of the
// sender to that of the receiver, and how many bytes the rank sends each second.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>

#include "timeline/lanes.h"
#include "timeline/trace_writer.h"

namespace rueda::timeline {

// When the messages of all ranks were sent, on the common clock.
class SentTimes {
 public:
  explicit SentTimes(Epoch epoch) : epoch_(epoch) {}
  // Of the rank whose record it is. Only what is sent counts.
  void add(Rank rank, const Span& message, Nanos begin);
  void forget(Rank rank, const Span& message);
  // Of a message that `rank` received; 0: not known.
  [[nodiscard]] Nanos of(Rank rank, const Span& message) const;
  // The arrow of a message that rank sent or received.
  [[nodiscard]] uint64_t arrow_of(Rank rank, const Span& message) const;

 private:
  Epoch epoch_;
  std::unordered_map<uint64_t, Nanos> begins_;  // by arrow
};

// A message is drawn on its receiver from when it was sent, if that is known: receives are posted long
// before.
class Messages {
 public:
  Messages(Rank rank, const SentTimes& sent, TraceWriter& writer)
      : rank_(rank), sent_(sent), writer_(writer) {}
  // The times are on the common clock; messages come in the order of their ends.
  void add(const Span& message, Nanos begin, Nanos end);
  void finish();

 private:
  void count(int64_t bytes, Nanos end);

  Rank rank_;
  const SentTimes& sent_;
  TraceWriter& writer_;
  std::map<std::pair<SpanKind, Rank>, Lanes> lanes_;
  Nanos window_ = 0;   // its end
  int64_t bytes_ = 0;  // sent in the window
};

}  // namespace rueda::timeline
