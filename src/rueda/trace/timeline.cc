// emit() encodes the event into a bounded buffer. It holds the lock only for that copy, because the writer
// takes whole buffers by swapping. When the buffer is full, events are dropped until the writer has emptied
// it. The next batch begins with a gap record, at which the writer closes everything that is open
// (chrome_format.h), so that begins and ends stay balanced.
#include "rueda/trace/timeline.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "rueda/base/clock.h"
#include "rueda/base/log.h"
#include "rueda/base/thread.h"
#include "rueda/trace/chrome_format.h"
#include "rueda/trace/event_codec.h"
#include "rueda/trace/trace_file.h"

namespace rueda::trace {
namespace {

constexpr size_t kMaxChunks = 4;                // of kMaxBatchBytes each: tens of thousands of events
constexpr size_t kMaxForeignBytes = 32u << 20;  // of batches of other ranks that wait for the writer
// How long events wait, so that several are written together.
constexpr auto kBatchTime = std::chrono::milliseconds(50);

struct ForeignBatch {
  Rank from = 0;
  Nanos offset = 0;
  Bytes bytes;
};

class FileTimeline : public Timeline {
 public:
  ~FileTimeline() override { stop(); }

  Status start(const TimelineOptions& options) override {
    const std::lock_guard lifecycle(lifecycle_);
    if (is_on() && options.path == options_.path && options.rank == options_.rank) return Status::ok();
    if (Status status = check_unwritten(options); !status.is_ok()) return status;
    stop_locked();
    {
      const std::lock_guard lock(mutex_);
      options_ = options;
    }
    if (options_.rank == 0) {
      if (Status status = open_file(); !status.is_ok()) return status;
    }
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = false;
      is_full_ = false;
      gap_ = 0;
      foreign_gaps_.clear();
      dropped_ = 0;
      is_on_ = true;
    }
    Status status = start_thread(writer_, "the timeline", [this] { write_loop(); });
    if (!status.is_ok())
      stop_locked();
    else
      start_records();
    return status;
  }

  void emit(const TraceEvent& event) override {
    if (!is_on()) return;
    if (recorder_.has_file() && event.kind != TraceKind::kCycle) recorder_.record(event);
    bool is_news = false;
    {
      const std::lock_guard lock(mutex_);
      if (!is_on_) return;
      // Marks from every rank would show the same round several times.
      if (event.kind == TraceKind::kCycle && (!options_.mark_cycles || options_.rank != 0)) return;
      const size_t chunks = chunks_.size();
      if (is_full_ || !reserve_chunk()) {
        is_full_ = true;
        ++gap_;
        ++dropped_;
        return;
      }
      append_event(chunks_.back(), event);
      is_news = chunks_.size() != chunks;  // wake the writer for the first event, or for many
    }
    if (is_news) wake_.notify_one();
  }

  [[nodiscard]] bool is_on() const override { return is_on_.load(std::memory_order_relaxed); }

  void record(const CallTrace& call) override { recorder_.record(call); }
  void record(const TraceSpan& span) override {
    recorder_.record(span);
    if (span.kind == SpanKind::kStall) flight_writer_.request();
  }
  [[nodiscard]] bool is_recording() const override { return recorder_.is_on(); }
  [[nodiscard]] bool wants_messages() const override { return recorder_.has_file(); }
  [[nodiscard]] Recorder& recorder() override { return recorder_; }
  [[nodiscard]] FlightWriter& flight_writer() override { return flight_writer_; }

  Status ingest(Rank from, Nanos offset, std::span<const std::byte> batch) override {
    if (from <= 0) return {Code::kInvalidArgument, "Timeline events of rank 0 are not forwarded."};
    if (batch.size() > kMaxBatchBytes)
      return {Code::kInvalidArgument, "A batch of timeline events of rank " + std::to_string(from) + " has " +
                                          std::to_string(batch.size()) + " bytes, more than " +
                                          std::to_string(kMaxBatchBytes) + "."};
    int64_t events = 0;
    const BatchVisitor count{.event = [&](const TraceEvent&) { ++events; },
                             .gap = [&](int64_t dropped) { dropped_ += dropped; }};
    if (Status status = visit_batch(batch, count); !status.is_ok()) return status;
    {
      const std::lock_guard lock(mutex_);
      if (!is_on_ || file_rank() != 0 || events == 0) return Status::ok();
      if (foreign_bytes_ + batch.size() > kMaxForeignBytes) {
        foreign_gaps_[from] += events;
        dropped_ += events;
        return Status::ok();
      }
      ForeignBatch foreign{from, offset, {}};
      if (const auto gap = foreign_gaps_.find(from); gap != foreign_gaps_.end()) {
        append_gap(foreign.bytes, gap->second);
        foreign_gaps_.erase(gap);
      }
      foreign.bytes.insert(foreign.bytes.end(), batch.begin(), batch.end());
      foreign_bytes_ += foreign.bytes.size();
      foreign_.push_back(std::move(foreign));
    }
    wake_.notify_one();
    return Status::ok();
  }

  void stop() override {
    const std::lock_guard lifecycle(lifecycle_);
    stop_locked();
  }

  [[nodiscard]] int64_t dropped() const override { return dropped_; }

 private:
  [[nodiscard]] Rank file_rank() const { return options_.rank; }

  void stop_locked() {
    {
      const std::lock_guard lock(mutex_);
      is_on_ = false;
      is_stopping_ = true;
    }
    wake_.notify_one();
    if (writer_.joinable()) writer_.join();
    file_.close();
    recorder_.stop_file();
    options_.forward = {};  // it must not be called any more
  }

  // A rank that cannot write its own records still sends its events to rank 0.
  void start_records() {
    if (options_.path.empty()) return;
    const Status status = recorder_.start_file(record_path(options_.path, options_.rank), options_.goes_on);
    if (!status.is_ok()) RUEDA_LOG(kWarning, status.why);
  }

  // A file that goes on needs its state, which is kept of the last one only.
  Status check_unwritten(const TimelineOptions& options) {
    const bool is_new = written_.empty() || written_.back() != options.path;
    if (!options.goes_on || options.path.empty()) return Status::ok();
    const std::string beside = record_path(options.path, options.rank);
    if (is_new && std::ranges::find(written_, options.path) != written_.end() &&
        ::access(beside.c_str(), F_OK) == 0)
      return {Code::kUnavailable, "The timeline " + options.path +
                                      " was written by this process before another one, and would be "
                                      "emptied; give this part a name of its own."};
    if (is_new) std::erase(written_, options.path);
    if (is_new) written_.push_back(options.path);
    return Status::ok();
  }

  Status open_file() {
    if (options_.goes_on && format_ && options_.path == written_path_ && file_.reopen()) return Status::ok();
    format_.reset();
    if (Status status = file_.open(options_.path); !status.is_ok()) return status;
    written_path_ = options_.path;
    format_ = std::make_unique<ChromeFormat>(monotonic_now(), epoch_micros_now());
    if (options_.size > 1) format_->expect_ranks();
    Status status = file_.append(format_->take());
    if (!status.is_ok()) format_.reset();
    return status;
  }

  // Makes room for one more event in the last chunk. mutex_ is held.
  bool reserve_chunk() {
    if (!chunks_.empty() && chunks_.back().size() + kMaxEventBytes <= kMaxBatchBytes) return true;
    if (chunks_.size() == kMaxChunks) return false;
    chunks_.emplace_back();
    if (chunks_.size() == 1 && gap_ > 0) {
      append_gap(chunks_.back(), gap_);
      gap_ = 0;
    }
    return true;
  }

  void write_loop() {
    bool is_last = false;
    while (!is_last) {
      std::vector<Bytes> chunks;
      std::deque<ForeignBatch> foreign;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return is_stopping_ || !chunks_.empty() || !foreign_.empty(); });
        wake_.wait_for(lock, kBatchTime, [&] { return is_stopping_ || chunks_.size() > kMaxChunks / 2; });
        is_last = is_stopping_;
        chunks.swap(chunks_);
        foreign.swap(foreign_);
        foreign_bytes_ = 0;
        is_full_ = false;
        if (is_last && gap_ > 0) {
          append_gap(chunks.emplace_back(), gap_);
          gap_ = 0;
        }
      }
      if (file_rank() == 0) {
        write(chunks, foreign, is_last);
      } else if (options_.forward) {
        for (Bytes& chunk : chunks) options_.forward(std::move(chunk));
      }
    }
  }

  void write(const std::vector<Bytes>& chunks, const std::deque<ForeignBatch>& foreign, bool is_last) {
    for (const Bytes& chunk : chunks) format(0, 0, chunk);
    for (const ForeignBatch& batch : foreign) format(batch.from, batch.offset, batch.bytes);
    if (is_last) format_->close_open(-1);
    flush();
  }

  void format(Rank rank, Nanos offset, const Bytes& bytes) {
    const Status status =
        visit_batch(bytes, {.event = [&](const TraceEvent& e) { format_->add(rank, e, offset); },
                            .gap = [&](int64_t dropped) { format_->add_gap(rank, dropped); }});
    RUEDA_CHECK(status.is_ok(), "batches were encoded here or checked by ingest");
    flush();  // in pieces, because the text is several times as large as the events
  }

  void flush() {
    const std::vector<std::string> objects = format_->take();
    if (!file_.is_open()) {
      dropped_ += static_cast<int64_t>(objects.size());
      return;
    }
    if (const Status status = file_.append(objects); !status.is_ok()) {
      RUEDA_LOG(kError, status.why + " The timeline ends here; training continues.");
      dropped_ += static_cast<int64_t>(objects.size());
      file_.close();
    }
  }

  Recorder recorder_;
  FlightWriter flight_writer_{recorder_};
  std::mutex lifecycle_;  // start and stop
  TimelineOptions options_;
  std::unique_ptr<ChromeFormat> format_;  // writer thread only, while it runs; kept to continue a file
  TraceFile file_;                        // the same
  std::string written_path_;              // the file of format_ and file_
  std::vector<std::string> written_;      // timelines of this process that may go on; the last one last
  std::thread writer_;

  std::atomic<bool> is_on_{false};
  std::atomic<int64_t> dropped_{0};
  std::mutex mutex_;  // everything below
  std::condition_variable wake_;
  std::vector<Bytes> chunks_;
  bool is_full_ = false;  // drop events until the writer has taken all: a gap is one run of events
  int64_t gap_ = 0;
  std::deque<ForeignBatch> foreign_;
  size_t foreign_bytes_ = 0;
  std::map<Rank, int64_t> foreign_gaps_;
  bool is_stopping_ = false;
};

}  // namespace

std::unique_ptr<Timeline> make_timeline() { return std::make_unique<FileTimeline>(); }

}  // namespace rueda::trace
