// A trace file of all ranks, in one of two formats: Perfetto's protobuf (https://ui.perfetto.dev) or the JSON
// of Chrome, which is what Horovod writes. One thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/status.h"
#include "timeline/job.h"
#include "timeline/records.h"

namespace rueda::timeline {

// A row of a rank. It has as many lanes as slices overlapped.
struct Row {
  enum class Kind : uint8_t { kSteps, kEvents, kInput, kBlocked, kCalls, kSent, kReceived, kTensor };
  Kind kind = Kind::kEvents;
  int lane = 0;
  Rank peer = -1;             // kSent, kReceived
  std::string_view tensor{};  // kTensor

  [[nodiscard]] std::string name() const;
};
inline constexpr Row kStepsRow{Row::Kind::kSteps}, kEventsRow{Row::Kind::kEvents},
    kInputRow{Row::Kind::kInput};

// What rises and falls in the course of a rank.
enum class Counter : uint8_t { kQueue, kBytesUnderWay, kPlannedCalls, kSentRate };
constexpr std::string_view name_of(Counter counter) {
  switch (counter) {
    case Counter::kQueue:
      return "calls in the queue";
    case Counter::kBytesUnderWay:
      return "bytes under way";
    case Counter::kPlannedCalls:
      return "calls by a learned plan";
    case Counter::kSentRate:
      return "bytes sent each second";
  }
  return {};
}

// Arrows between slices, by their numbers: those that start at a slice, and the one that ends there. 0: none.
struct Arrows {
  std::vector<uint64_t> starting;
  uint64_t ending = 0;
  std::string_view name = "waited for";  // a constant; Chrome's format shows it
};

struct Detail {
  std::string_view name;
  int64_t value = 0;
  std::string_view text{};  // if it is not empty, it is shown instead of the value
};

class TraceWriter {
 public:
  virtual ~TraceWriter() = default;
  // What follows is of this rank. The times are on the common clock.
  virtual void begin_rank(const RankFile& file) = 0;
  // Slices of one lane come in the order of their times: those within another one between its begin and end.
  virtual void slice_begin(Row row, std::string_view name, Nanos begin, std::span<const Detail> details) = 0;
  // result: of a whole operation on a tensor, "float32 [2, 3]"; else empty.
  virtual void slice_end(Row row, Nanos end, std::string_view result) = 0;
  void slice(Row row, std::string_view name, Nanos begin, Nanos end, std::span<const Detail> details = {}) {
    slice_begin(row, name, begin, details);
    slice_end(row, end, {});
  }
  // Of the slice that begins next.
  virtual void set_arrows(Arrows arrows) = 0;
  // In the order of the times, of one rank and counter.
  virtual void counter(Counter which, Nanos when, int64_t value) = 0;
  virtual void instant(Row row, std::string_view name, Nanos when) = 0;
  // A member of the process set is ready for the tensor of this row.
  virtual void ready(Row row, Rank member, Nanos when) = 0;
  virtual void gap(int64_t records) = 0;
  // The bytes since the last call, to be written to the file in this order.
  virtual std::string take() = 0;
  virtual std::string finish() = 0;
};

// start: the earliest time of all ranks.
std::unique_ptr<TraceWriter> make_perfetto_writer(Nanos start, int64_t start_micros);
std::unique_ptr<TraceWriter> make_chrome_writer(Nanos start, int64_t start_micros);

// All epochs of all files, with one clock. out ends with .json: Chrome's format.
Status merge(const std::string& out, const std::vector<std::string>& paths,
             std::vector<std::string>& remarks);

}  // namespace rueda::timeline
