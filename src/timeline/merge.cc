// Reads every file twice: once to learn the clocks and which rank came last to each call, and once to write.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "timeline/trace_writer.h"

namespace rueda::timeline {
namespace {

constexpr size_t kMaxCalls = 4u << 20;  // whose last rank is known; beyond, waiting is part of the transfer
constexpr size_t kFlushBytes = 1u << 20;
constexpr Nanos kNoTime = std::numeric_limits<Nanos>::max();

struct LastRank {
  Nanos started = 0;
  const RankFile* file = nullptr;
};
using LastRanks = std::unordered_map<uint64_t, LastRank>;

uint64_t key_of(Epoch epoch, const Call& call) {
  return (call.order ^ uint64_t{call.generation} << 48) * 0x9E3779B97F4A7C15u ^ static_cast<uint64_t>(epoch)
                                                                                    << 32;
}

// The first lane in which everything has ended.
class Lanes {
 public:
  int take(Nanos begin, Nanos end) {
    const auto free = std::ranges::find_if(ends_, [&](Nanos other) { return other <= begin; });
    if (free != ends_.end())
      *free = end;
    else
      ends_.push_back(end);
    return static_cast<int>(free != ends_.end() ? free - ends_.begin()
                                                : static_cast<ptrdiff_t>(ends_.size()) - 1);
  }

 private:
  std::vector<Nanos> ends_;
};

class File {
 public:
  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (file_ != nullptr) std::fclose(file_);
  }
  Status open(const std::string& path) {
    path_ = path;
    file_ = std::fopen(path.c_str(), "wb");
    return file_ != nullptr ? Status::ok() : failure();
  }
  Status write(const std::string& bytes) {
    return std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size() ? Status::ok() : failure();
  }
  Status close() {
    std::FILE* const closing = std::exchange(file_, nullptr);
    return std::fclose(closing) == 0 ? Status::ok() : failure();
  }

 private:
  [[nodiscard]] Status failure() const {
    return {Code::kUnavailable, "Cannot write " + path_ + ": " + std::strerror(errno) + "."};
  }
  std::FILE* file_ = nullptr;
  std::string path_;
};

// Writes the records of one rank in one epoch.
class RankMerger {
 public:
  RankMerger(const RankFile& file, Epoch epoch, const LastRanks& last, TraceWriter& writer)
      : file_(file), epoch_(epoch), last_(last), writer_(writer) {}

  void add(const Call& call) {
    Call shown = call;
    for (Nanos CallTrace::*when : {&CallTrace::submitted, &CallTrace::ordered, &CallTrace::started,
                                   &CallTrace::transfer_began, &CallTrace::unpack_began, &CallTrace::ended})
      shown.*when = file_.aligned(shown.*when);
    const Nanos begin = shown.submitted != 0 ? shown.submitted : shown.ordered;
    const int lane = calls_.take(begin, shown.ended);
    const std::array<Detail, 5> details = {{{"bytes", call.bytes},
                                            {"tensors", call.tensors},
                                            {"learned plan", call.is_planned ? 1 : 0},
                                            {"order", static_cast<int64_t>(call.order)},
                                            {"process set", call.process_set}}};
    std::string name = std::string(rueda::name_of(call.what)) + " " + std::string(call.name);
    if (call.tensors > 1) name += " +" + std::to_string(call.tensors - 1);
    phases_.clear();
    add_phases(shown);
    // An outer slice comes before those in it: begin, then the phases, then its end.
    writer_.slice_begin(Row::kCalls, lane, name, begin, details);
    for (const Phase& phase : phases_) writer_.slice(Row::kCalls, lane, phase.name, phase.begin, phase.end);
    writer_.slice_end(Row::kCalls, lane, shown.ended);
  }

  void add(const Span& span) {
    const Nanos begin = file_.aligned(span.begin), end = file_.aligned(span.end);
    switch (span.kind) {
      case SpanKind::kStep:
        if (span.value != file_.step_source) return;
        if (step_began_ != 0)
          writer_.slice(Row::kSteps, 0, "step " + std::to_string(steps_++), step_began_, begin);
        step_began_ = begin;
        return;
      case SpanKind::kInput:
        return writer_.slice(Row::kInput, 0, "INPUT", begin, end);
      case SpanKind::kWait:
        return writer_.slice(Row::kBlocked, waits_.take(begin, end), "WAIT", begin, end);
      case SpanKind::kPlanBegins:
        return writer_.instant(Row::kEvents, "plan learned", begin);
      case SpanKind::kPlanEnds:
        return writer_.instant(Row::kEvents, "plan left: " + std::string(span.text), begin);
      case SpanKind::kFailure:
        return writer_.instant(Row::kEvents, "epoch broke: " + std::string(span.text), begin);
      case SpanKind::kClock:
      case SpanKind::kLink:
        return;
    }
  }

  void add(const Event& event) { writer_.tensor_event(event, file_.aligned(event.when)); }
  void add(const Gap& gap) { writer_.gap(gap.records); }
  void add(const EpochRecord&) {}

 private:
  struct Phase {
    std::string name;
    Nanos begin = 0, end = 0;
  };
  void phase(std::string name, Nanos begin, Nanos end) {
    if (begin > 0 && end > begin) phases_.push_back({std::move(name), begin, end});
  }
  void add_phases(const Call& call) {
    const std::string_view before = call.is_planned ? "WAIT_FOR_BUCKET" : "NEGOTIATE";
    phase(std::string(before), call.submitted, call.ordered);
    phase("QUEUE", call.ordered, call.started);
    const Nanos began = std::max(call.started, call.transfer_began);
    phase("PACK", call.started, began);
    const Nanos sent = call.unpack_began != 0 ? call.unpack_began : call.ended;
    Nanos arrived = began;
    const auto at = last_.find(key_of(epoch_, call));
    if (at != last_.end() && at->second.file != nullptr && at->second.file->rank != file_.rank &&
        at->second.file->is_aligned) {
      const RankFile& other = *at->second.file;
      const bool is_clear = at->second.started - call.started > file_.bound(other, call.ended);
      if (is_clear && file_.is_aligned) arrived = std::clamp(at->second.started, began, sent);
      if (arrived > began) phase("WAIT_FOR_RANK_" + std::to_string(other.rank), began, arrived);
    }
    phase("TRANSFER", arrived, sent);
    phase("UNPACK", sent, call.ended);
  }

  const RankFile& file_;
  Epoch epoch_;
  const LastRanks& last_;
  TraceWriter& writer_;
  Lanes calls_, waits_;
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

Status find_last(const Job& job, Names& names, LastRanks& last) {
  for (const RankFile& file : job.ranks) {
    const Status read = for_each_record(file, job.epoch, names, [&](const Record& record) {
      const auto* call = std::get_if<Call>(&record);
      if (call == nullptr || (last.size() >= kMaxCalls && !last.contains(key_of(job.epoch, *call))))
        return Status::ok();
      LastRank& one = last[key_of(job.epoch, *call)];
      const Nanos started = file.aligned(call->started);
      if (started > one.started) one = {started, &file};
      return Status::ok();
    });
    if (!read.is_ok()) return read;
  }
  return Status::ok();
}

Status write_epoch(const Job& job, Names& names, TraceWriter& writer, File& out) {
  LastRanks last;
  if (Status status = find_last(job, names, last); !status.is_ok()) return status;
  for (const RankFile& file : job.ranks) {
    writer.begin_rank(file);
    RankMerger merger(file, job.epoch, last, writer);
    std::string waiting;
    const Status written = for_each_record(file, job.epoch, names, [&](const Record& record) {
      std::visit([&](const auto& one) { merger.add(one); }, record);
      waiting += writer.take();
      return waiting.size() < kFlushBytes ? Status::ok() : out.write(std::exchange(waiting, {}));
    });
    if (!written.is_ok()) return written;
    if (Status status = out.write(waiting); !status.is_ok()) return status;
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
  const auto writer =
      out.ends_with(".json") ? make_chrome_writer(start, start_micros) : make_perfetto_writer();
  File file;
  if (Status status = file.open(out); !status.is_ok()) return status;
  for (const Job& job : jobs)
    if (Status status = write_epoch(job, names, *writer, file); !status.is_ok()) return status;
  if (Status status = file.write(writer->finish()); !status.is_ok()) return status;
  return file.close();
}

}  // namespace rueda::timeline
