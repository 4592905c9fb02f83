#include "timeline/step_events.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace rueda::timeline {
namespace {

constexpr size_t kMostMarks = 2'000;
constexpr size_t kMostSubmissions = 1u << 22;

class Reader {
 public:
  Reader(const RankFile& file, LeftOut& left_out) : file_(file), left_out_(left_out) {}

  void take(const Call& call) {
    call_ = call;
    if (call.is_waited_for) events_.blocked.push_back({begin_of(call), call.ended});
  }

  void take(const Span& span) {
    if (span.kind == SpanKind::kWait) events_.blocked.push_back({span.begin, span.end});
    if (span.kind == SpanKind::kStep && file_.steps.is_mark_of(span.value))
      events_.marks.push_back({span.begin, std::exchange(has_gap_, false)});
  }

  void take(const TensorRecord& tensor) {
    events_.has_details = true;
    const bool is_whole =
        tensor.failed == 0 && tensor.submitted != 0 && tensor.call == call_tag(call_.generation, call_.order);
    const bool is_of_step = !events_.marks.empty() && tensor.submitted >= events_.marks.front().when;
    if (!is_whole || !is_of_step) return;
    if (const std::string why = unfit(tensor); !why.empty()) {
      left_out_[why].insert(without_number(tensor.name));
      return;
    }
    if (const int64_t bytes = given_bytes(bytes_of(tensor.result)); bytes > 0)
      events_.submissions.push_back(
          {tensor.name, call_.what, bytes, tensor.submitted, call_.ended, call_.is_waited_for});
  }

  void note_gap() { has_gap_ = true; }
  [[nodiscard]] bool is_full() const {
    return events_.marks.size() >= kMostMarks || events_.submissions.size() >= kMostSubmissions;
  }
  StepEvents finish() && { return std::move(events_); }

 private:
  [[nodiscard]] int64_t given_bytes(int64_t result_bytes) const {
    if (call_.what == Collective::kAllgather) return result_bytes / file_.size;
    return call_.what == Collective::kReducescatter ? result_bytes * file_.size : result_bytes;
  }

  [[nodiscard]] std::string unfit(const TensorRecord& tensor) const {
    if (call_.process_set != 0) return "of a process set";
    if (call_.what == Collective::kJoin || call_.what == Collective::kBarrier)
      return "of " + std::string(name_of(call_.what));
    return (tensor.operation & kAdasumCode) != 0 ? "of ADASUM" : "";
  }

  const RankFile& file_;
  LeftOut& left_out_;
  StepEvents events_;
  Call call_;
  bool has_gap_ = false;
};

// "[2, 3]" -> 6; 0: it is not understood
int64_t elements_of(std::string_view shape) {
  if (!shape.starts_with('[') || !shape.ends_with(']')) return 0;
  int64_t elements = 1;
  const char* const end = shape.data() + shape.size() - 1;
  for (const char* at = shape.data() + 1; at < end;) {
    int64_t extent = 0;
    const auto [next, error] = std::from_chars(at, end, extent);
    if (error != std::errc() || extent < 0 || __builtin_mul_overflow(elements, extent, &elements)) return 0;
    at = next;
    while (at < end && (*at == ',' || *at == ' ')) ++at;
  }
  return elements;
}

}  // namespace

std::string without_number(std::string_view name) {
  for (const std::string_view before : {std::string_view(".noname."), std::string_view(" ")}) {
    const size_t at = name.rfind(before);
    if (at == std::string_view::npos) continue;
    const size_t from = at + before.size(),
                 end = std::min(name.find_first_not_of("0123456789", from), name.size());
    if (end == from || (end < name.size() && name[end] != '/' && name[end] != '_')) continue;
    return std::string(name.substr(0, from)) + '#' + std::string(name.substr(end));
  }
  return std::string(name);
}

int64_t bytes_of(std::string_view result) {
  const size_t space = result.find(' ');
  if (space == std::string_view::npos) return 0;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    int64_t bytes = 0;
    if (name_of(dtype) != result.substr(0, space)) continue;
    const int64_t elements = elements_of(result.substr(space + 1));
    return __builtin_mul_overflow(elements, static_cast<int64_t>(size_of(dtype)), &bytes) ? 0 : bytes;
  }
  return 0;
}

Result<StepEvents> read_step_events(const RankFile& file, Epoch epoch, Names& names, LeftOut& left_out) {
  Result<RecordReader> reader = RecordReader::open(file.path, names);
  if (!reader.is_ok()) return reader.status();
  Reader events(file, left_out);
  bool is_mine = false;
  while (const Record* record = events.is_full() ? nullptr : reader.value().next()) {
    if (const auto* of = std::get_if<EpochRecord>(record)) is_mine = of->epoch == epoch;
    if (!is_mine) continue;
    if (const auto* call = std::get_if<Call>(record)) events.take(*call);
    if (const auto* span = std::get_if<Span>(record)) events.take(*span);
    if (const auto* tensor = std::get_if<TensorRecord>(record)) events.take(*tensor);
    if (std::holds_alternative<Gap>(*record)) events.note_gap();
  }
  return std::move(events).finish();
}

}  // namespace rueda::timeline
