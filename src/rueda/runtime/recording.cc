#include "rueda/runtime/recording.h"

#include <utility>

namespace rueda::runtime {

Recording::Recording(std::shared_ptr<trace::Timeline> timeline, Rank me, std::function<void()> on_batch)
    : me_(me),
      on_batch_(std::move(on_batch)),
      timeline_(timeline ? std::move(timeline) : trace::make_timeline()) {}

Status Recording::start(const std::string& path, bool mark_cycles, bool goes_on) {
  const std::lock_guard lock(mutex_);
  if (path == path_) return Status::ok();
  if (!path_.empty()) timeline_->stop();
  path_.clear();
  trace::TimelineOptions options{
      .path = path, .rank = me_, .mark_cycles = mark_cycles, .goes_on = goes_on, .forward = {}};
  if (me_ != 0) {
    options.forward = [this](Bytes batch) {
      {
        const std::lock_guard batches_lock(batches_mutex_);
        batches_.push_back(std::move(batch));
      }
      on_batch_();
    };
  }
  if (Status s = timeline_->start(options); !s.is_ok()) return s;
  path_ = path;
  return Status::ok();
}

void Recording::stop() {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) return;  // the timeline may belong to another epoch now
  timeline_->stop();
  path_.clear();
}

bool Recording::has_batches() {
  const std::lock_guard lock(batches_mutex_);
  return !batches_.empty();
}

std::vector<Bytes> Recording::take_batches() {
  const std::lock_guard lock(batches_mutex_);
  return std::exchange(batches_, {});
}

}  // namespace rueda::runtime
