#include "rueda/trace/timeline.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/listing.h"
#include "rueda/base/log.h"
#include "rueda/base/thread.h"
#include "rueda/trace/live_trace.h"

namespace rueda::trace {
namespace {

// So much the trace is behind the records. Horovod's own test looks at it 100 ms after a call.
constexpr auto kDrawInterval = std::chrono::milliseconds(20);
constexpr auto kDrawIntervalOfRank = std::chrono::milliseconds(1);  // each rank's file is looked at
constexpr Nanos kDrawTime = 10 * kSecond;                           // of what is left at the end
constexpr size_t kMaxListed = 6;

std::string list_ranks(const std::vector<Rank>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") +
         list_first(ranks, kMaxListed, [](Rank rank) { return std::to_string(rank); });
}

// Where the ending of the file's name begins: ".json".
size_t ending_of(const std::string& path) {
  const size_t name = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1;
  const size_t dot = path.rfind('.');
  return dot == std::string::npos || dot <= name ? path.size() : dot;
}

class FileTimeline : public Timeline {
 public:
  using Timeline::stop;
  ~FileTimeline() override { stop(0); }

  Status start(const TimelineOptions& options) override {
    const std::lock_guard lifecycle(lifecycle_);
    if (is_started_ && options.path == options_.path && options.rank == options_.rank) return Status::ok();
    if (Status status = check_unwritten(options); !status.is_ok()) return status;
    stop_locked(0);
    options_ = options;
    const bool draws = options.rank == 0;
    Status drawn;
    if (draws)
      drawn = trace_.open({.path = options.path,
                           .size = options.size,
                           .origin = recorder_.origin(),
                           .goes_on = options.goes_on});
    marks_cycles_ = draws && options.mark_cycles;
    const Status recorded = recorder_.start_file(record_path(options.path, options.rank), options.goes_on);
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = is_in_haste_ = false;
    }
    if (draws && drawn.is_ok()) drawn = start_drawer();
    is_started_ = drawn.is_ok() || recorded.is_ok();
    if (!drawn.is_ok() && recorded.is_ok())
      drawn.why += " Meanwhile all ranks keep their records beside it (" + options.path +
                   ".rank*.rec), from which `rueda timeline merge` draws the timeline.";
    if (drawn.is_ok() && !recorded.is_ok()) RUEDA_LOG(kWarning, recorded.why);
    return drawn;
  }

  void record(const CallTrace& call) override { recorder_.record(call); }
  void record(const TensorTrace& tensor) override { recorder_.record(tensor); }
  void record(const TraceSpan& span) override {
    if (span.kind == SpanKind::kCycle && !marks_cycles_.load(std::memory_order_relaxed)) return;
    recorder_.record(span);
    if (span.kind == SpanKind::kStall) flight_writer_.request();
  }
  [[nodiscard]] bool is_recording() const override { return recorder_.is_on(); }
  [[nodiscard]] bool wants_details() const override { return recorder_.has_file(); }
  [[nodiscard]] Recorder& recorder() override { return recorder_; }
  [[nodiscard]] FlightWriter& flight_writer() override { return flight_writer_; }

  void stop(Nanos patience) override {
    const std::lock_guard lifecycle(lifecycle_);
    stop_locked(patience);
  }

  void stop_waiting() override {
    {
      const std::lock_guard lock(mutex_);
      is_in_haste_ = true;
    }
    wake_.notify_one();
  }

 private:
  Status start_drawer() {
    Status status = start_thread(drawer_, "the timeline", [this] { draw_loop(); });
    if (!status.is_ok()) trace_.close();
    return status;
  }

  void stop_locked(Nanos patience) {
    recorder_.stop_file();
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
      patience_ = patience;  // with other ranks
    }
    wake_.notify_one();
    if (drawer_.joinable()) drawer_.join();
    trace_.close();
    is_started_ = false;
  }

  // A file that goes on needs its state, which is kept of the last one only.
  Status check_unwritten(const TimelineOptions& options) {
    const bool is_new = written_.empty() || written_.back() != options.path;
    if (!options.goes_on) return Status::ok();
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

  void draw_loop() {
    const auto interval = kDrawInterval + options_.size * kDrawIntervalOfRank;
    for (bool is_last = false; !is_last;) {
      {
        std::unique_lock lock(mutex_);
        is_last = wake_.wait_for(lock, interval, [&] { return is_stopping_; });
      }
      if (!is_last) (void)trace_.draw(Deadline::after(kDrawTime));
    }
    const Deadline deadline = Deadline::after(kDrawTime);
    const std::vector<Rank> late = await_others(interval, deadline);
    const bool is_all = trace_.draw(deadline);  // what they wrote before they stopped
    tell_missing();
    if (!late.empty())
      RUEDA_LOG(kWarning, "The timeline " + options_.path + " may lack the last events of " +
                              list_ranks(late) + (late.size() == 1 ? ", which was" : ", which were") +
                              " still recording when rank 0 closed it: let all ranks call "
                              "stop_timeline(), or draw their records with `rueda timeline merge`.");
    if (!is_all)
      RUEDA_LOG(kWarning, "The timeline " + options_.path +
                              " lacks what was recorded last, because drawing it took too long; `rueda "
                              "timeline merge` draws all records.");
  }

  // Draws until all ranks have stopped recording that rank 0 sees. Returns those that have not within the
  // patience of the stop().
  std::vector<Rank> await_others(std::chrono::milliseconds interval, const Deadline& deadline) {
    const Nanos began = monotonic_now();
    std::unique_lock lock(mutex_);
    if (patience_ == 0 || is_in_haste_) return {};
    for (;;) {
      lock.unlock();
      (void)trace_.draw(deadline);  // also finds the files of ranks that have just begun
      std::vector<Rank> late = trace_.recording();
      lock.lock();
      if (late.empty() || is_in_haste_ || monotonic_now() - began >= patience_) return late;
      wake_.wait_for(lock, interval, [&] { return is_in_haste_; });
    }
  }

  void tell_missing() {
    std::vector<Rank> missing = options_.elsewhere;
    std::erase_if(missing, [&](Rank rank) { return trace_.has_drawn(rank); });
    if (missing.empty()) return;
    RUEDA_LOG(kWarning, "The timeline " + options_.path + " does not show " + list_ranks(missing) +
                            ", whose records lie on their own hosts: put " + options_.path +
                            ".rank*.rec of all hosts into one folder, and `rueda timeline merge` draws all.");
  }

  Recorder recorder_;
  FlightWriter flight_writer_{recorder_};
  std::mutex lifecycle_;  // start and stop
  TimelineOptions options_;
  bool is_started_ = false;
  std::vector<std::string> written_;  // timelines of this process that may go on; the last one last
  LiveTrace trace_;                   // of the drawer, while it runs
  std::thread drawer_;
  std::atomic<bool> marks_cycles_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_stopping_ = false;  // under mutex_, as the next two
  bool is_in_haste_ = false;  // a stop() waits for nobody, until the next start()
  Nanos patience_ = 0;        // of the stop()
};

}  // namespace

std::string path_of_view(const std::string& path, int64_t view) {
  if (view <= 1) return path;
  std::string named = path;
  return named.insert(ending_of(path), ".view" + std::to_string(view));
}

std::unique_ptr<Timeline> make_timeline() { return std::make_unique<FileTimeline>(); }

}  // namespace rueda::trace
