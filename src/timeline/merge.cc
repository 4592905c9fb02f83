// Reads every file twice: once to learn the clocks, which rank came last to each call and when messages were
// sent, and once to write.
#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "rueda/trace/tensor_bars.h"
#include "timeline/lanes.h"
#include "timeline/messages.h"
#include "timeline/output_file.h"
#include "timeline/trace_writer.h"

namespace rueda::timeline {
namespace {

constexpr size_t kMaxCalls = 4u << 20;    // whose last rank is known; beyond, waiting is part of the transfer
constexpr size_t kMaxChanges = 4u << 20;  // of counters; beyond, they end
constexpr Nanos kShortestArrow = 2 * kMicrosecond;  // Chrome's times are microseconds
constexpr size_t kFlushBytes = 1u << 20;
constexpr Nanos kNoTime = std::numeric_limits<Nanos>::max();

struct LastRank {
  Nanos began = 0, started = 0, first_started = kNoTime;
  const RankFile* file = nullptr;

  // Whether it came clearly later than a rank that started at this time.
  [[nodiscard]] bool is_after(const RankFile& other, Nanos other_started, Nanos ended) const {
    return file != nullptr && file->is_aligned && other.is_aligned && file->rank != other.rank &&
           started - other_started > other.bound(*file, ended);
  }
  [[nodiscard]] bool has_arrows() const { return started - began >= kShortestArrow; }
};
using LastRanks = std::unordered_map<uint64_t, LastRank>;

uint64_t key_of(Epoch epoch, const Call& call) {
  return (call.order ^ uint64_t{call.generation} << 48) * 0x9E3779B97F4A7C15u ^ static_cast<uint64_t>(epoch)
                                                                                    << 32;
}

// The arrow from the slice of the last rank to that of a rank that waited for it.
uint64_t arrow_of(uint64_t call, Rank waiter) {
  return (call + static_cast<uint64_t>(waiter) + 1) * 0xD6E8FEB86659FD93u | 1;
}

// What the calls of a rank say about its queue and its transfers. Their records come in the order of their
// ends, so the changes are sorted before they are written.
class Counters {
 public:
  void add(const Call& call) {
    if (changes_.size() + 3 > kMaxChanges) {
      end_ = std::min(end_, call.ordered);
      return;
    }
    if (call.ordered == 0 || call.started == 0) return;
    changes_.push_back({call.ordered, 1, 0, 0});
    changes_.push_back({call.started, -1, call.bytes, 0});
    changes_.push_back({call.ended, 0, -call.bytes, call.is_planned ? 1 : 0});
  }
  void write(TraceWriter& writer) {
    std::ranges::sort(changes_, {}, &Change::when);
    Change sum, shown{.when = 0, .queue = -1, .bytes = -1, .planned = -1};
    for (size_t i = 0; i < changes_.size() && changes_[i].when < end_; ++i) {
      const Change& one = changes_[i];
      sum = {one.when, sum.queue + one.queue, sum.bytes + one.bytes, sum.planned + one.planned};
      if (i + 1 < changes_.size() && changes_[i + 1].when == one.when) continue;
      if (sum.queue != shown.queue) writer.counter(Counter::kQueue, sum.when, sum.queue);
      if (sum.bytes != shown.bytes) writer.counter(Counter::kBytesUnderWay, sum.when, sum.bytes);
      if (sum.planned != shown.planned) writer.counter(Counter::kPlannedCalls, sum.when, sum.planned);
      shown = sum;
    }
    changes_.clear();
  }

 private:
  struct Change {
    Nanos when = 0;
    int64_t queue = 0, bytes = 0, planned = 0;
  };
  std::vector<Change> changes_;
  Nanos end_ = kNoTime;  // from here on not all calls are known
};

// The rows of a rank's tensors.
class Bars final : public trace::BarSink {
 public:
  Bars(const RankFile& file, TraceWriter& writer) : file_(file), writer_(writer) {}
  void begin(std::string_view tensor, std::string_view name, Nanos when) override {
    writer_.slice_begin(row_of(tensor), name, file_.aligned(when), {});
  }
  void end(std::string_view tensor, Nanos when, std::string_view result) override {
    writer_.slice_end(row_of(tensor), file_.aligned(when), result);
  }
  void ready(std::string_view tensor, Rank member, Nanos when) override {
    writer_.ready(row_of(tensor), member, file_.aligned(when));
  }

 private:
  static Row row_of(std::string_view tensor) { return {.kind = Row::Kind::kTensor, .tensor = tensor}; }
  const RankFile& file_;
  TraceWriter& writer_;
};

// Writes the records of one rank in one epoch.
class RankMerger {
 public:
  RankMerger(const RankFile& file, Epoch epoch, const LastRanks& last, const SentTimes& sent,
             TraceWriter& writer)
      : file_(file), epoch_(epoch), last_(last), writer_(writer), messages_(file.rank, sent, writer) {
    writer_.instant(kEventsRow, "epoch " + std::to_string(epoch) + " begins", file.aligned(file.began));
  }

  void add(const Call& call) {
    Call shown = call;
    for (Nanos CallTrace::*when : {&CallTrace::submitted, &CallTrace::ordered, &CallTrace::started,
                                   &CallTrace::transfer_began, &CallTrace::unpack_began, &CallTrace::ended})
      shown.*when = file_.aligned(shown.*when);
    const Nanos begin = begin_of(shown);
    counters_.add(shown);
    const Row row{.kind = Row::Kind::kCalls, .lane = calls_.take(begin, shown.ended)};
    const std::array<Detail, 6> details = {
        {{"bytes", call.bytes},
         {"tensors", call.tensors},
         {"learned plan", call.is_planned ? 1 : 0},
         {"order", static_cast<int64_t>(call.order)},
         {"process set", call.process_set},
         {"algorithm", 0, call.algorithm.empty() ? "unknown" : call.algorithm}}};
    std::string name = std::string(rueda::name_of(call.what)) + " " + std::string(call.name);
    if (call.tensors > 1) name += " +" + std::to_string(call.tensors - 1);
    phases_.clear();
    add_phases(shown);
    // An outer slice comes before those in it: begin, then the phases, then its end.
    writer_.set_arrows({.starting = arrows_to_others(shown), .ending = 0});
    writer_.slice_begin(row, name, begin, details);
    for (const Phase& phase : phases_) {
      writer_.set_arrows({.starting = {}, .ending = phase.arrow});
      writer_.slice(row, phase.name, phase.begin, phase.end);
    }
    writer_.slice_end(row, shown.ended, {});
    tensors_.add(call);
  }

  void add(const Span& span) {
    const Nanos begin = file_.aligned(span.begin), end = file_.aligned(span.end);
    switch (span.kind) {
      case SpanKind::kStep:
        if (!file_.steps.is_mark_of(span.value)) return;
        if (step_began_ != 0)
          writer_.slice(kStepsRow, "step " + std::to_string(steps_++), step_began_, begin);
        step_began_ = begin;
        return;
      case SpanKind::kInput:
        return writer_.slice(kInputRow, "INPUT", begin, end);
      case SpanKind::kWait:
        return writer_.slice({.kind = Row::Kind::kBlocked, .lane = waits_.take(begin, end)}, "WAIT", begin,
                             end);
      case SpanKind::kPlanBegins:
        return writer_.instant(kEventsRow, "plan learned", begin);
      case SpanKind::kPlanEnds:
        return writer_.instant(kEventsRow, "plan left: " + std::string(span.text), begin);
      case SpanKind::kFailure:
        return writer_.instant(kEventsRow, "epoch broke: " + std::string(span.text), begin);
      case SpanKind::kStall:
        return writer_.instant(kEventsRow, "stall: " + std::string(span.text), begin);
      case SpanKind::kVerdict:
        return writer_.instant(kEventsRow, std::string(span.text), begin);
      case SpanKind::kSent:
      case SpanKind::kReceived:
        return messages_.add(span, begin, end);
      case SpanKind::kReady:
        return tensors_.add(span, bars_);
      case SpanKind::kCycle:
        return writer_.instant(kEventsRow, "CYCLE_START", begin);
      case SpanKind::kClock:
      case SpanKind::kLink:
      case SpanKind::kLinkPauses:
      case SpanKind::kLinkAwaited:
        return;
    }
  }

  void add(const TensorRecord& tensor) { tensors_.add(tensor, bars_); }
  void add(const Gap& gap) {
    step_began_ = 0;  // the marks between are not known
    if (gap.records == 0) return;
    tensors_.close(bars_);
    writer_.gap(gap.records);
  }
  void add(const EpochRecord&) {}
  void finish() {
    tensors_.close(bars_);
    messages_.finish();
    counters_.write(writer_);
  }

 private:
  struct Phase {
    std::string name;
    Nanos begin = 0, end = 0;
    uint64_t arrow = 0;  // that ends here
  };
  void phase(std::string name, Nanos begin, Nanos end, uint64_t arrow = 0) {
    if (begin > 0 && end > begin) phases_.push_back({std::move(name), begin, end, arrow});
  }
  [[nodiscard]] const LastRank* last_of(const Call& call) const {
    const auto at = last_.find(key_of(epoch_, call));
    return at == last_.end() ? nullptr : &at->second;
  }
  // If others waited for this rank. Which ones is known only where their records are read.
  [[nodiscard]] std::vector<uint64_t> arrows_to_others(const Call& call) const {
    std::vector<uint64_t> arrows;
    const LastRank* const last = last_of(call);
    if (last == nullptr || last->file != &file_ || !last->has_arrows() ||
        last->first_started >= last->started)
      return arrows;
    for (Rank rank = 0; rank < file_.size; ++rank)
      if (rank != file_.rank) arrows.push_back(arrow_of(key_of(epoch_, call), rank));
    return arrows;
  }
  void add_phases(const Call& call) {
    const std::string_view before = call.is_planned ? "WAIT_FOR_BUCKET" : "NEGOTIATE";
    phase(std::string(before), call.submitted, call.ordered);
    phase("QUEUE", call.ordered, call.started);
    const Nanos began = std::max(call.started, call.transfer_began);
    phase("PACK", call.started, began);
    const Nanos sent = call.unpack_began != 0 ? call.unpack_began : call.ended;
    Nanos arrived = began;
    uint64_t arrow = 0;
    const LastRank* const last = last_of(call);
    if (last != nullptr && last->is_after(file_, call.started, call.ended)) {
      arrived = std::clamp(last->started, began, std::max(began, sent));
      if (arrived > began) phase("WAIT_FOR_RANK_" + std::to_string(last->file->rank), began, arrived);
      if (arrived == last->started && arrived > began && last->has_arrows())
        arrow = arrow_of(key_of(epoch_, call), file_.rank);
    }
    phase("TRANSFER", arrived, sent, arrow);
    phase("UNPACK", sent, call.ended);
  }

  const RankFile& file_;
  Epoch epoch_;
  const LastRanks& last_;
  TraceWriter& writer_;
  Lanes calls_, waits_;
  Counters counters_;
  Messages messages_;
  Bars bars_{file_, writer_};
  trace::TensorBars tensors_;
  std::vector<Phase> phases_;
  Nanos step_began_ = 0;
  int64_t steps_ = 0;
};

// Calls f(record) for each record of the epoch.
template <class Visit>
Status for_each_record(const RankFile& file, Epoch epoch, Names& names, const Visit& visit) {
  Result<RecordReader> reader = RecordReader::open(file.path, names);
  if (!reader.is_ok()) return reader.status();
  bool is_mine = false;
  while (const Record* record = reader.value().next()) {
    if (const auto* begins = std::get_if<EpochRecord>(record)) is_mine = begins->epoch == epoch;
    if (!is_mine) continue;
    if (Status status = visit(*record); !status.is_ok()) return status;
  }
  return Status::ok();
}

Status read_ahead(const Job& job, Names& names, LastRanks& last, SentTimes& sent) {
  for (const RankFile& file : job.ranks) {
    const Status read = for_each_record(file, job.epoch, names, [&](const Record& record) {
      if (const auto* span = std::get_if<Span>(&record); span != nullptr)
        sent.add(file.rank, *span, file.aligned(span->begin));
      const auto* call = std::get_if<Call>(&record);
      if (call == nullptr || (last.size() >= kMaxCalls && !last.contains(key_of(job.epoch, *call))))
        return Status::ok();
      LastRank& one = last[key_of(job.epoch, *call)];
      const Nanos started = file.aligned(call->started);
      one.first_started = std::min(one.first_started, started);
      if (started > one.started) {
        one.began = file.aligned(begin_of(*call));
        one.started = started;
        one.file = &file;
      }
      return Status::ok();
    });
    if (!read.is_ok()) return read;
  }
  return Status::ok();
}

Status write_epoch(const Job& job, Names& names, TraceWriter& writer, OutputFile& out) {
  LastRanks last;
  SentTimes sent(job.epoch);
  if (Status status = read_ahead(job, names, last, sent); !status.is_ok()) return status;
  for (const RankFile& file : job.ranks) {
    writer.begin_rank(file);
    RankMerger merger(file, job.epoch, last, sent, writer);
    std::string waiting;
    const Status written = for_each_record(file, job.epoch, names, [&](const Record& record) {
      std::visit([&](const auto& one) { merger.add(one); }, record);
      waiting += writer.take();
      return waiting.size() < kFlushBytes ? Status::ok() : out.write(std::exchange(waiting, {}));
    });
    if (!written.is_ok()) return written;
    merger.finish();
    if (Status status = out.write(waiting + writer.take()); !status.is_ok()) return status;
  }
  return Status::ok();
}

}  // namespace

Status merge(const std::string& out, const std::vector<std::string>& paths,
             std::vector<std::string>& remarks) {
  Names names;
  const Result<Job> first = read_job(paths, -1, names);
  if (!first.is_ok()) return first.status();
  std::vector<Job> jobs;
  for (const Epoch epoch : first.value().epochs) {
    Result<Job> job = read_job(paths, static_cast<int64_t>(epoch), names);
    if (!job.is_ok()) return job.status();
    jobs.push_back(std::move(job).value());
  }
  remarks = first.value().remarks;
  Nanos start = kNoTime;
  int64_t start_micros = 0;
  for (const Job& job : jobs)
    for (const RankFile& file : job.ranks)
      if (const Nanos began = file.aligned(file.began); began < start) {
        start = began;
        start_micros = file.began_micros;
      }
  const auto writer = out.ends_with(".json") ? make_chrome_writer(start, start_micros)
                                             : make_perfetto_writer(start, start_micros);
  OutputFile file;
  if (Status status = file.open(out); !status.is_ok()) return status;
  for (const Job& job : jobs)
    if (Status status = write_epoch(job, names, *writer, file); !status.is_ok()) return status;
  if (Status status = file.write(writer->finish()); !status.is_ok()) return status;
  return file.close();
}

}  // namespace rueda::timeline
