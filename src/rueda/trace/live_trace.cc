#include "rueda/trace/live_trace.h"

#include <fcntl.h>

#include <utility>
#include <variant>

#include "rueda/base/log.h"
#include "rueda/base/unique_fd.h"
#include "rueda/trace/record_file.h"

namespace rueda::trace {
namespace {

constexpr int kRecordsAtOnce = 4'096;  // the text of a record is several times as large

bool is_changed(const struct stat& now, const struct stat& then) {
  return now.st_ino != then.st_ino || now.st_size != then.st_size ||
         now.st_mtim.tv_sec != then.st_mtim.tv_sec || now.st_mtim.tv_nsec != then.st_mtim.tv_nsec;
}

void add_to(ClockEstimate& clock, const Span& span) {
  clock.add({.at = span.begin, .offset = span.value, .round_trip = span.end});
}

// When what is drawn of a record was over; 0: the record before says so.
Nanos time_of(const Record& record) {
  if (const auto* call = std::get_if<Call>(&record)) return call->ended;
  const auto* span = std::get_if<Span>(&record);
  if (span != nullptr)
    return span->kind == SpanKind::kReady || span->kind == SpanKind::kCycle ? span->begin : 0;
  const auto* tensor = std::get_if<TensorRecord>(&record);
  return tensor != nullptr ? tensor->failed : 0;
}

}  // namespace

// Bars of one rank, on the clock of rank 0.
class LiveTrace::Sink final : public BarSink {
 public:
  Sink(ChromeFormat& format, Rank rank, const ClockEstimate& clock)
      : format_(format), rank_(rank), clock_(clock) {}
  void begin(std::string_view tensor, std::string_view name, Nanos when) override {
    format_.begin(at(tensor, when), name);
  }
  void end(std::string_view tensor, Nanos when, std::string_view result) override {
    format_.end(at(tensor, when), result);
  }
  void ready(std::string_view tensor, Rank member, Nanos when) override {
    format_.ready(at(tensor, when), member);
  }

 private:
  [[nodiscard]] ChromeFormat::At at(std::string_view tensor, Nanos when) const {
    return {.rank = rank_, .track = tensor, .when = when + clock_.at(when).offset};
  }
  ChromeFormat& format_;
  Rank rank_;
  const ClockEstimate& clock_;
};

Status LiveTrace::open(const Options& options) {
  const bool goes_on = options.goes_on && format_ && options.path == path_ && file_.reopen();
  origin_ = options.origin;
  if (!goes_on) {
    format_.reset();
    sources_.clear();
    if (Status status = file_.open(options.path); !status.is_ok()) return status;
    path_ = options.path;
    start_ = monotonic_now();
    format_ = std::make_unique<ChromeFormat>(start_, epoch_micros_now());
  }
  if (options.size > 1) format_->expect_ranks();
  for (const auto& source : sources_) source->is_of_job = false;  // until it says so again
  for (auto rank = static_cast<Rank>(sources_.size()); rank < options.size; ++rank)
    sources_.emplace_back(std::make_unique<Source>())->path = record_path(path_, rank);
  Status status = file_.append(format_->take());
  if (status.is_ok()) return status;
  file_.close();
  format_.reset();
  return status;
}

bool LiveTrace::draw(Deadline deadline) {
  bool is_all = true;
  for (size_t rank = 0; rank < sources_.size() && file_.is_open(); ++rank)
    is_all = draw(static_cast<Rank>(rank), *sources_[rank], deadline) && is_all;
  return is_all;
}

bool LiveTrace::draw(Rank rank, Source& source, const Deadline& deadline) {
  struct stat now {};
  if (stat(source.path.c_str(), &now) != 0) return true;  // it has not begun, or lies on another host
  const struct stat then = std::exchange(source.seen, now);
  if (now.st_ino != then.st_ino) source.reader.reset();
  if (now.st_ino != then.st_ino || now.st_size < then.st_size)
    source.is_found = source.is_of_job = false;  // begun anew
  if (!source.is_found && (!is_changed(now, then) || !find(source))) return true;
  // A network file system looks for what is new when a file is opened.
  if (!source.is_aligned) UniqueFd(::open(source.path.c_str(), O_RDONLY | O_CLOEXEC)).reset();
  do {
    for (int i = 0; i < kRecordsAtOnce; ++i) {
      const Record* const record = source.reader->next();
      if (record == nullptr) return flush(), true;
      take(rank, source, *record);
    }
    flush();
  } while (!deadline.is_past());
  return false;
}

// Reads a file from its start: whether it has records of this job, and if it is of another host, the time
// there. A file of an older job has neither, and will be emptied. The reader is kept, because closing it
// would end the lock with which this process writes the same file.
bool LiveTrace::find(Source& source) {
  if (source.reader) {
    source.reader->rewind();
  } else {
    Result<RecordReader> opened = RecordReader::open(source.path, names_);
    if (!opened.is_ok()) return false;
    source.reader = std::move(opened).value();
  }
  source.is_mine = false;
  while (!source.is_found) {
    const Record* const record = source.reader->next();
    if (record == nullptr) return false;
    if (const auto* epoch = std::get_if<EpochRecord>(record)) {
      source.is_mine = epoch->job == origin_.job;
      source.is_of_job = source.is_mine;
      source.is_aligned = epoch->host_key == origin_.host_key;
    }
    const auto* span = std::get_if<Span>(record);
    const bool has_clock = span != nullptr && span->kind == SpanKind::kClock && !source.is_aligned;
    if (source.is_mine && has_clock) add_to(source.clock, *span);
    source.is_found = source.is_mine && (source.is_aligned || has_clock);
  }
  source.reader->rewind();
  source.is_mine = false;
  return true;
}

// Whether it is of an earlier timeline in the same record file.
bool LiveTrace::is_old(const Source& source, const Record& record) const {
  const Nanos when = time_of(record);
  return when == 0 ? source.is_old : when + source.clock.at(when).offset < start_;
}

void LiveTrace::take(Rank rank, Source& source, const Record& record) {
  if (const auto* epoch = std::get_if<EpochRecord>(&record))
    source.is_of_job = source.is_mine = epoch->job == origin_.job;
  if (!source.is_mine) return;
  const auto* span = std::get_if<Span>(&record);
  if (span != nullptr && span->kind == SpanKind::kClock && !source.is_aligned) add_to(source.clock, *span);
  source.is_old = is_old(source, record);
  if (source.is_old) return;
  Sink sink(*format_, rank, source.clock);
  if (const auto* call = std::get_if<Call>(&record)) return source.bars.add(*call);
  if (const auto* tensor = std::get_if<TensorRecord>(&record)) return source.bars.add(*tensor, sink);
  if (const auto* gap = std::get_if<Gap>(&record); gap != nullptr && gap->records > 0) {
    source.bars.close(sink);
    return format_->add_gap(rank, gap->records);
  }
  if (span == nullptr) return;
  if (span->kind == SpanKind::kReady) source.bars.add(*span, sink);
  if (span->kind == SpanKind::kCycle) format_->cycle(span->begin);
}

void LiveTrace::flush() {
  const std::vector<std::string> objects = format_->take();
  if (!file_.is_open()) return;
  if (const Status status = file_.append(objects); !status.is_ok()) {
    RUEDA_LOG(kError, status.why +
                          " The timeline ends here; training continues, and `rueda timeline merge` draws "
                          "what is recorded.");
    file_.close();
  }
}

bool LiveTrace::has_drawn(Rank rank) const {
  return std::cmp_less(rank, sources_.size()) && sources_[static_cast<size_t>(rank)]->is_found;
}

std::vector<Rank> LiveTrace::recording() const {
  std::vector<Rank> ranks;
  for (size_t rank = 0; rank < sources_.size(); ++rank) {
    const Source& source = *sources_[rank];
    if (source.is_of_job && source.reader && !source.reader->is_stopped())
      ranks.push_back(static_cast<Rank>(rank));
  }
  return ranks;
}

void LiveTrace::close() {
  if (!file_.is_open()) return;
  for (size_t rank = 0; rank < sources_.size(); ++rank) {
    Sink sink(*format_, static_cast<Rank>(rank), sources_[rank]->clock);
    sources_[rank]->bars.close(sink);
  }
  format_->close_open(-1);
  flush();
  file_.close();
}

}  // namespace rueda::trace
