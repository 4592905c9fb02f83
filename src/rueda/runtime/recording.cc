#include "rueda/runtime/recording.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "rueda/base/log.h"

namespace rueda::runtime {
namespace {

constexpr size_t kMostCommand = 256;  // bytes: it stands in every segment of a record file

// "python train.py --epochs 3", as ps shows it.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text(kMostCommand, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text;
}

constexpr Nanos kPatience = 5 * kSecond;  // with ranks that stop their timelines later
constexpr Nanos kShortestRecorded = 2 * kMicrosecond;
constexpr Nanos kLookInterval = 5 * kSecond;  // one system call for each channel

}  // namespace

Recording::Recording(std::shared_ptr<trace::Timeline> timeline, Rank me)
    : me_(me), timeline_(timeline ? std::move(timeline) : trace::make_timeline()) {}

Status Recording::start(const std::string& given, bool mark_cycles, bool goes_on) {
  const std::lock_guard lock(mutex_);
  const std::string path = trace::path_of_view(given, view_);
  if (path != given && path != path_ && me_ == 0)
    RUEDA_LOG(kWarning, "The timeline of view " + std::to_string(view_) + " is written to " + path + ".");
  if (path == path_) return Status::ok();
  if (!path_.empty()) {
    RUEDA_LOG(kWarning, "The timeline " + path_ + " ends here, because " + path + " is started.");
    timeline_->stop(kPatience);
  }
  path_.clear();
  is_started_ = false;
  const trace::TimelineOptions options{.path = path,
                                       .rank = me_,
                                       .size = world_size_,
                                       .mark_cycles = mark_cycles,
                                       .elsewhere = elsewhere_,
                                       .goes_on = goes_on};
  Status status = timeline_->start(options);
  is_started_ = status.is_ok() || timeline_->wants_details();  // rank 0 may record without a trace
  if (is_started_) path_ = path;
  return status;
}

void Recording::stop() {
  if (is_started_) timeline_->stop_waiting();
  stop(0);
}

void Recording::stop_with_others() { stop(kPatience); }

void Recording::stop(Nanos patience) {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) return;  // the timeline may belong to another epoch now
  timeline_->stop(patience);
  path_.clear();
  is_started_ = false;
}

void Recording::begin_epoch(const Session& session) {
  trace::Recorder& recorder = timeline_->recorder();
  recorder.keep(static_cast<size_t>(session.config.flight_record_bytes));
  flight_record_ = session.config.flight_record;
  watch(session.config.flight_record_signal);
  world_size_ = session.size();
  view_ = session.view;
  for (Rank rank = 0; rank < world_size_; ++rank)
    if (!are_on_one_host(*session.all, rank, 0)) elsewhere_.push_back(rank);
  const PeerInfo& mine = (*session.all)[static_cast<size_t>(session.me)];
  const PeerInfo& first = session.all->front();
  const std::string job = first.host_key + "|" + std::to_string(first.pid);
  recorder.begin_epoch({.epoch = session.epoch,
                        .rank = session.me,
                        .size = session.size(),
                        .local_rank = session.place.local_rank,
                        .pid = mine.pid,
                        .job = static_cast<int64_t>(std::hash<std::string>()(job)),
                        .began = monotonic_now(),
                        .began_micros = epoch_micros_now(),
                        .host = mine.host,
                        .host_key = mine.host_key,
                        .command = command_line()});
}

void Recording::waited(Nanos begin, Nanos end) {
  if (end - begin >= kShortestRecorded)
    timeline_->record(TraceSpan{.kind = SpanKind::kWait, .begin = begin, .end = end});
}

void Recording::look_at_links(const Links& links, Nanos now, status::Meters& meters, bool is_last) {
  if (now < next_look_ && !is_last) return;
  next_look_ = now + kLookInterval;
  int64_t sent = 0;
  for (Rank peer = 0; peer < world_size_; ++peer) {
    if (peer == me_) continue;
    const std::optional<transport::LinkUse> use = links.use(peer);
    if (!use) continue;
    sent += use->sent_bytes;
    if (!is_on()) continue;
    timeline_->record(TraceSpan{
        .kind = SpanKind::kLink, .begin = now, .end = use->busy, .value = use->sent_bytes, .peer = peer});
    timeline_->record(TraceSpan{
        .kind = SpanKind::kLinkPauses, .begin = now, .end = now, .value = use->pauses, .peer = peer});
    if (use->awaited > 0)
      timeline_->record(TraceSpan{.kind = SpanKind::kLinkAwaited,
                                  .begin = now,
                                  .end = use->awaited,
                                  .value = use->awaited_bytes,
                                  .peer = peer});
  }
  const int64_t more = sent - sent_then_;
  meters.link_bytes.fetch_add(more, std::memory_order_relaxed);
  if (last_look_ != 0 && now > last_look_)
    meters.link_bytes_per_s.store(
        static_cast<int64_t>(static_cast<double>(more) * kSecond / static_cast<double>(now - last_look_)));
  last_look_ = now;
  sent_then_ = sent;
}

void Recording::failed(const Status& why) {
  const Nanos now = monotonic_now();
  timeline_->record(TraceSpan{.kind = SpanKind::kFailure, .begin = now, .end = now, .text = why.why});
  has_failed_ = true;
}

void Recording::watch(int signal) {
  Status status;
  if (!flight_record_.empty() && timeline_->is_recording())
    status = timeline_->flight_writer().start(trace::record_path(flight_record_, me_), signal);
  else if (signal != 0)
    status = {Code::kInvalidArgument,
              "RUEDA_FLIGHT_RECORD_SIGNAL has no effect without a path in RUEDA_FLIGHT_RECORD."};
  if (!status.is_ok()) RUEDA_LOG(kWarning, status.why);
}

void Recording::write_flight_record() {
  timeline_->flight_writer().stop();
  if (!has_failed_ || flight_record_.empty() || !timeline_->is_recording()) return;
  const std::string path = trace::record_path(flight_record_, me_);
  const Status written = timeline_->recorder().write_ring(path);
  if (written.is_ok())
    RUEDA_LOG(kWarning,
              "The flight record of this rank is in " + path + "; `rueda timeline summary` reads it.");
  else
    RUEDA_LOG(kError, written.why);
}

}  // namespace rueda::runtime
