#include "timeline/step_stream.h"

namespace rueda::timeline {

namespace {

constexpr size_t kMaxMessagesOfStep = 1u << 14;  // of a step

}  // namespace

StepStream::StepStream(RecordReader reader, const RankFile& file, Epoch epoch, const Division& division)
    : reader_(std::move(reader)), file_(&file), epoch_(epoch), division_(division) {
  if (division_.window > 0) at_ = division_.from;
}

Result<StepStream> StepStream::open(const RankFile& file, Epoch epoch, const Division& division,
                                    Names& names) {
  Result<RecordReader> reader = RecordReader::open(file.path, names);
  if (!reader.is_ok()) return reader.status();
  return StepStream(std::move(reader).value(), file, epoch, division);
}

void StepStream::take(const Call& call, RankStep& step) const {
  Call& taken = step.calls.emplace_back(call);
  for (Nanos CallTrace::*when : {&CallTrace::submitted, &CallTrace::ordered, &CallTrace::started,
                                 &CallTrace::transfer_began, &CallTrace::unpack_began, &CallTrace::ended})
    taken.*when = file_->aligned(taken.*when);
}

void StepStream::take(const Span& span, RankStep& step) const {
  if (span.kind == SpanKind::kWait)
    step.waits.emplace_back(file_->aligned(span.begin), file_->aligned(span.end));
  if (span.kind == SpanKind::kInput)
    step.inputs.emplace_back(file_->aligned(span.begin), file_->aligned(span.end));
  if (is_message(span.kind) && step.messages.size() < kMaxMessagesOfStep) {
    Span& message = step.messages.emplace_back(span);
    message.begin = file_->aligned(span.begin);
    message.end = file_->aligned(span.end);
  }
}

std::optional<RankStep> StepStream::next() { return division_.window > 0 ? next_window() : next_marked(); }

std::optional<RankStep> StepStream::next_marked() {
  RankStep step;
  while (const Record* record = reader_.next()) {
    if (const auto* epoch = std::get_if<EpochRecord>(record)) {
      is_mine_ = epoch->epoch == epoch_;
      continue;
    }
    if (!is_mine_) continue;
    if (const auto* call = std::get_if<Call>(record); call != nullptr && at_ != 0) take(*call, step);
    const auto* span = std::get_if<Span>(record);
    if (span == nullptr) continue;
    if (span->kind != SpanKind::kStep) {
      if (at_ != 0) take(*span, step);
      continue;
    }
    if (!file_->steps.is_mark_of(span->value)) continue;
    const Nanos mark = file_->aligned(span->begin);
    if (at_ == 0) {
      if (mark >= division_.from) at_ = mark;
      continue;
    }
    if (mark > division_.until) return std::nullopt;
    step.begin = at_;
    step.end = at_ = mark;
    return step;
  }
  return std::nullopt;
}

// A record belongs to the window in which it was made, which is about when it ended.
std::optional<RankStep> StepStream::next_window() {
  if (at_ >= division_.until) return std::nullopt;
  RankStep step = std::exchange(ahead_, {});
  step.begin = at_;
  step.end = at_ = at_ + division_.window;
  while (const Record* record = reader_.next()) {
    if (const auto* epoch = std::get_if<EpochRecord>(record)) is_mine_ = epoch->epoch == epoch_;
    if (!is_mine_) continue;
    const auto* call = std::get_if<Call>(record);
    const auto* span = std::get_if<Span>(record);
    const bool is_span = span != nullptr && (span->kind == SpanKind::kWait ||
                                             span->kind == SpanKind::kInput || is_message(span->kind));
    if (call == nullptr && !is_span) continue;
    const Nanos ended = file_->aligned(call != nullptr ? call->ended : span->end);
    const bool is_last = step.end >= division_.until && ended <= division_.until;  // with the end of the job
    const bool is_next = ended >= step.end && !is_last;
    RankStep& to = is_next ? ahead_ : step;
    if (call != nullptr) take(*call, to);
    if (is_span) take(*span, to);
    if (is_next) break;
  }
  return step;
}

}  // namespace rueda::timeline
