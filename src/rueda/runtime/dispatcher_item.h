// What the dispatcher keeps of a response that waits or runs, and the record of its call.
// Included by dispatcher.cc alone. Engine thread only.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/base/check.h"
#include "rueda/base/trace_sink.h"
#include "rueda/control/order.h"
#include "rueda/runtime/batch.h"

namespace rueda::runtime {

// What the members of a set tell one another before a bucket whose rows vary (control/row_counts.h).
struct RowCounts {
  std::vector<int64_t> mine, all;  // all: by members
  Nanos submitted = 0;             // when the last tensor was
};

class DispatchItem final : public backend::ActivitySink {
 public:
  using Origin = control::BatchOrigin;

  explicit DispatchItem(control::SharedBucket said) : bucket(std::move(said)) {}
  explicit DispatchItem(control::Response said) : notice(std::move(said)) {}

  void begin(backend::Activity activity) override {
    has_packed_ = has_packed_ || activity == backend::Activity::kPack;
    if (activity == backend::Activity::kTransfer) transfer_began = has_packed_ ? monotonic_now() : started;
    if (activity == backend::Activity::kUnpack) unpack_began = monotonic_now();
  }
  [[nodiscard]] bool wants_messages() const override { return messages != nullptr; }
  void add(const backend::Message& message) override {
    messages->record(TraceSpan{.kind = message.is_sent ? SpanKind::kSent : SpanKind::kReceived,
                               .begin = message.begin,
                               .end = message.end,
                               .value = message.bytes,
                               .peer = batch->group->members[static_cast<size_t>(message.peer)],
                               .call = call_tag(generation, place),
                               .number = message.number});
  }
  [[nodiscard]] backend::Cancellation& cancellation() const {
    backend::Cancellation* const found = backend->cancellation();
    RUEDA_CHECK(found != nullptr, "this backend takes no call back");
    return *found;
  }

  control::SharedBucket bucket;             // null: a notice
  std::optional<control::Response> notice;  // a response that is no call
  Origin origin = Origin::kNegotiated;
  uint16_t generation = 0;
  uint64_t place = 0;                             // as in control::Ordered
  std::vector<std::optional<TensorRef>> tensors;  // of this rank, until the batch takes them
  size_t first_position = 0;                      // kPlanned: as in control::StartBucket
  std::vector<int32_t> arrivals;                  // kDiscarded
  // kPlanned, where rows vary: shared by the call that tells them and the bucket behind it.
  std::shared_ptr<RowCounts> row_counts;
  bool tells_rows = false;     // it is the former, and has no operations
  std::optional<Batch> batch;  // of this run if is_made, else of the one before
  bool is_made = false;
  backend::Backend* backend = nullptr;                      // that runs it
  int16_t backend_number = control::Readiness::kNoBackend;  // its index in the table
  backend::CallId id = 0;
  TraceSink* messages = nullptr;  // null: its messages are not recorded
  bool is_recorded = false;       // and counted
  Nanos ordered = 0, started = 0, transfer_began = 0, unpack_began = 0;  // if it is recorded

  // For the next run of a bucket of a plan: forgets this one, and keeps its memory.
  void renew() {
    tensors.clear();
    row_counts.reset();
    batch->segments.clear();
    for (BatchTensor& tensor : batch->tensors) tensor.ref.reset();
    is_made = has_packed_ = false;
    messages = nullptr;
    ordered = started = transfer_began = unpack_began = moved_at_ = still_ = 0;
  }

  void moved(Nanos now) {
    still_ = std::max(still_, now - std::max(moved_at_, started));
    moved_at_ = now;
  }

  [[nodiscard]] CallTrace record_of(const backend::Done& done, Nanos ended) const {
    CallTrace call = trace_of(*batch);
    if (tells_rows) call.submitted = row_counts->submitted;
    call.is_planned = origin == Origin::kPlanned;
    call.is_launched = done.event != nullptr;
    call.generation = generation;
    call.order = place;
    call.backend = backend->name();
    call.algorithm = done.how;
    call.ordered = ordered;
    call.started = started;
    call.transfer_began = transfer_began;
    call.unpack_began = unpack_began;
    call.ended = ended;
    call.still = std::max(still_, ended - std::max(moved_at_, started));
    return call;
  }

 private:
  bool has_packed_ = false;
  Nanos moved_at_ = 0, still_ = 0;
};

}  // namespace rueda::runtime
