#include "rueda/trace/recorder.h"

#include <algorithm>
#include <utility>

#include "rueda/base/log.h"
#include "rueda/base/thread.h"

namespace rueda::trace {
namespace {

constexpr auto kWriteInterval = std::chrono::milliseconds(50);  // what a killed process loses at most
constexpr Nanos kTryInterval = kSecond;                         // of a disk that was full
constexpr size_t kRoomToGoOn = 1u << 20;                        // less would be full again at once
constexpr size_t kManySegments = 32;                            // that wait: the writer comes at once
constexpr size_t kMaxNames = 64u << 10;                         // unnamed operations get a new name each

std::string_view cut(std::string_view text) { return text.substr(0, kMaxNameBytes); }
size_t slots_for(std::string_view text) { return slots_of_name(cut(text).size()); }

}  // namespace

void Recorder::keep(size_t bytes) {
  const std::lock_guard lock(mutex_);
  kept_bytes_ = bytes == 0 ? 0 : std::max(bytes, 2 * kSegmentBytes);
  update_is_on();
}

void Recorder::begin_epoch(const EpochTrace& epoch) {
  const std::lock_guard lock(mutex_);
  host_ = cut(epoch.host);
  host_key_ = cut(epoch.host_key);
  command_ = cut(epoch.command);
  epoch_ = epoch;
  epoch_.host = host_;
  epoch_.host_key = host_key_;
  epoch_.command = command_;
  if (is_on()) new_segment(epoch.began);
}

void Recorder::record(const CallTrace& call) {
  const std::lock_guard lock(mutex_);
  if (!is_on()) return;
  reserve(kSlotsOfCall, slots_for(call.name) + slots_for(call.backend) + slots_for(call.algorithm),
          call.ended);
  const CallNames names{.name = id_of_call(call.name),
                        .backend = id_of(call.backend, backend_),
                        .algorithm = id_of(call.algorithm, algorithm_)};
  Segment& segment = *segments_.back();
  pack(call, names, &segment.slots[segment.used]);
  segment.used += kSlotsOfCall;
  ++segment.records;
  // The ring is larger than the caches. Without this the next record would wait for its memory.
  __builtin_prefetch(&segment.slots[std::min(segment.used, kSegmentSlots - 1)], 1);
  __builtin_prefetch(&segment.slots[std::min(segment.used + 2, kSegmentSlots - 1)], 1);
}

void Recorder::record(const TraceSpan& span) {
  const std::lock_guard lock(mutex_);
  if (!is_on()) return;
  const bool is_instant = span.kind == SpanKind::kClock || span.kind == SpanKind::kLink ||
                          span.kind == SpanKind::kLinkAwaited;  // their `end` is no time of day
  reserve(1, slots_for(span.text), is_instant ? span.begin : std::max(span.begin, span.end));
  const uint32_t text = id_of(span.text);
  Segment& segment = *segments_.back();
  segment.slots[segment.used++] = pack(span, text);
  ++segment.records;
}

void Recorder::record(const TensorTrace& tensor) {
  const std::lock_guard lock(mutex_);
  if (!is_on()) return;
  std::string result;
  if (!tensor.dtype.empty()) result.append(tensor.dtype).append(" ").append(tensor.shape);
  const Nanos last = segments_.empty() ? 0 : segments_.back()->last;  // when its call was recorded
  reserve(1, slots_for(tensor.name) + slots_for(result), std::max(last, tensor.failed));
  const uint32_t name = id_of(tensor.name);
  const uint32_t type = id_of(result);
  Segment& segment = *segments_.back();
  const bool has_failed = tensor.failed != 0;
  segment.slots[segment.used++] = {RecordSlotKind::kTensor,
                                   has_failed ? kFailedTensor : uint8_t{0},
                                   tensor.operation,
                                   name,
                                   tensor.submitted,
                                   type,
                                   has_failed ? tensor.failed : int64_t{tensor.call}};
  ++segment.records;
}

Origin Recorder::origin() const {
  const std::lock_guard lock(mutex_);
  return {.job = epoch_.job, .host_key = host_key_};
}

// Room in the last segment for a record and the names that it may have to define.
void Recorder::reserve(size_t slots, size_t name_slots, Nanos now) {
  if (segments_.empty() || segments_.back()->used + slots + name_slots > kSegmentSlots) new_segment(now);
  segments_.back()->last = now;
}

void Recorder::new_segment(Nanos now) {
  drop_old(now);
  if (names_.size() > kMaxNames) names_.clear();
  segments_.push_back(spare_ ? std::move(spare_) : std::make_shared<Segment>());
  Segment& segment = *segments_.back();
  segment.number = next_segment_++;
  segment.last = now;
  backend_ = algorithm_ = {};
  call_.clear();
  segment.slots[segment.used++] = {RecordSlotKind::kSegment, 0, 0, 0, kSegmentMagic, segment.number, 0};
  const EpochNames names{
      .host = id_of(epoch_.host), .host_key = id_of(epoch_.host_key), .command = id_of(epoch_.command)};
  pack(epoch_, names, &segment.slots[segment.used]);
  segment.used += kSlotsOfEpoch;
  if (has_file()) wake_.notify_one();
}

void Recorder::drop_old(Nanos now) {
  const size_t limit = std::max(kept_bytes_, has_file() ? kFileRingBytes : 0);
  const auto is_old = [&](const Segment& segment) {
    return (segments_.size() + 1) * kSegmentBytes > limit || segment.last < now - kKeptTime;
  };
  while (!segments_.empty() && is_old(*segments_.front())) {
    const Segment& oldest = *segments_.front();
    if (has_file()) {
      gap_ += oldest.records - oldest.written_records;
      dropped_ += oldest.records - oldest.written_records;
    }
    if (segments_.front().use_count() == 1) {
      spare_ = std::move(segments_.front());
      spare_->clear();
    }
    segments_.pop_front();
  }
}

uint32_t Recorder::id_of(std::string_view text) {
  if (text.empty()) return 0;
  const std::string_view shown = cut(text);
  auto at = names_.find(shown);
  if (at == names_.end()) at = names_.emplace(std::string(shown), Name{next_name_++, -1}).first;
  Segment& segment = *segments_.back();
  Name& name = at->second;
  if (name.segment == segment.number) return name.id;
  name.segment = segment.number;
  RecordSlot& first = segment.slots[segment.used];
  first = {RecordSlotKind::kName, 0, static_cast<uint16_t>(shown.size()), name.id, 0, 0, 0};
  std::memcpy(&first.a, shown.data(), std::min(shown.size(), sizeof(RecordSlot) - kNameHeaderBytes));
  if (shown.size() > sizeof(RecordSlot) - kNameHeaderBytes) {
    const std::string_view rest = shown.substr(sizeof(RecordSlot) - kNameHeaderBytes);
    RecordSlot* const more = &segment.slots[segment.used + 1];
    std::fill_n(more, slots_of_name(shown.size()) - 1, RecordSlot{});
    std::memcpy(static_cast<void*>(more), rest.data(), rest.size());
  }
  segment.used += slots_of_name(shown.size());
  return name.id;
}

// Backends and algorithms are few, and their names are constants.
uint32_t Recorder::id_of(std::string_view name, Constant& last) {
  if (name.data() != last.text) last = {.text = name.data(), .id = id_of(name)};
  return last.id;
}

uint32_t Recorder::id_of_call(std::string_view name) {
  if (name.empty() || name == call_) return name.empty() ? 0 : call_id_;
  call_id_ = id_of(name);
  call_.assign(name);
  return call_id_;
}

void Recorder::update_is_on() { is_on_ = kept_bytes_ > 0 || has_file(); }

size_t Recorder::ring_bytes() const {
  const std::lock_guard lock(mutex_);
  return segments_.size() * kSegmentBytes;
}

Status Recorder::start_file(const std::string& path, bool goes_on) {
  const std::lock_guard lifecycle(lifecycle_);
  stop_file_locked();
  if (Status status = file_.open(path, goes_on); !status.is_ok()) return status;
  std::vector<Piece> first;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = false;
    gap_ = dropped_ = 0;
    for (const auto& segment : segments_) segment->mark_written();  // it begins now
    has_file_ = true;
    update_is_on();
    new_segment(monotonic_now());
    first = take_pieces();
  }
  const bool is_losing = !write(first);
  Status status =
      start_thread(writer_, "the timeline's records", [this, is_losing] { write_loop(is_losing); });
  if (!status.is_ok()) stop_file_locked();
  return status;
}

void Recorder::stop_file() {
  const std::lock_guard lifecycle(lifecycle_);
  stop_file_locked();
}

void Recorder::stop_file_locked() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_one();
  if (writer_.joinable()) writer_.join();
  file_.close();
  const std::lock_guard lock(mutex_);
  has_file_ = false;
  update_is_on();
}

std::vector<Recorder::Piece> Recorder::take_pieces() {
  std::vector<Piece> pieces;
  for (const auto& segment : segments_) {
    if (segment->written == segment->used) continue;
    pieces.push_back({segment, segment->written, segment->used, std::exchange(gap_, 0),
                      segment->records - segment->written_records});
    segment->mark_written();
  }
  return pieces;
}

// What the file does not get, in records. Gaps before the pieces count as dropped already.
int64_t Recorder::count_lost(std::span<const Piece> pieces) {
  int64_t lost = 0;
  for (const Piece& piece : pieces) {
    dropped_ += piece.records;
    lost += piece.gap + piece.records;
  }
  return lost;
}

void Recorder::write_loop(bool is_losing) {
  Nanos next_try = 0;
  for (bool is_last = false; !is_last;) {
    std::vector<Piece> pieces;
    const bool goes_on = is_losing && monotonic_now() >= next_try && file_.has_room(kRoomToGoOn);
    if (is_losing && monotonic_now() >= next_try) next_try = monotonic_now() + kTryInterval;
    int64_t lost = 0;
    {
      std::unique_lock lock(mutex_);
      const auto has_many = [&] {
        const auto waiting = std::ranges::count_if(segments_, [](const auto& s) { return s->written == 0; });
        return is_stopping_ || std::cmp_greater(waiting, kManySegments);
      };
      wake_.wait_for(lock, kWriteInterval, has_many);
      is_last = is_stopping_;
      if (is_losing)
        lost = count_lost(take_pieces()) + std::exchange(gap_, 0);
      else
        pieces = take_pieces();
      if (goes_on) new_segment(monotonic_now());  // names of a lost one are not known to the reader
    }
    if (is_losing) {
      file_.lose(lost);
      is_losing = !goes_on;
    } else if (!write(pieces)) {
      is_losing = true;
      next_try = monotonic_now() + kTryInterval;
    }
  }
}

bool Recorder::write(const std::vector<Piece>& pieces) {
  for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
    Status status;
    if (piece->gap > 0) {
      const RecordSlot gap{RecordSlotKind::kGap, 0, 0, 0, 0, piece->gap, 0};
      status = file_.append({&gap, 1});
    }
    const bool has_gap = status.is_ok();
    const std::span<const RecordSlot> slots(piece->segment->slots.get(), kSegmentSlots);
    if (status.is_ok()) status = file_.append(slots.subspan(piece->from, piece->to - piece->from));
    if (status.is_ok()) continue;
    file_.lose(count_lost({piece, pieces.end()}) - (has_gap ? piece->gap : 0));
    RUEDA_LOG(kError, status.why +
                          " Records of this rank are missing from here on, until there is room "
                          "again; training continues.");
    return false;
  }
  return true;
}

std::vector<Recorder::Piece> Recorder::pieces_of_ring() const {
  const std::lock_guard lock(mutex_);
  std::vector<Piece> pieces;
  for (const auto& segment : segments_) pieces.push_back({segment, 0, segment->used, 0});
  return pieces;
}

std::string Recorder::ring() const {
  const std::vector<Piece> pieces = pieces_of_ring();
  std::string bytes;
  if (pieces.empty()) return bytes;
  const auto append = [&](std::span<const RecordSlot> slots) {
    const auto raw = std::as_bytes(slots);
    bytes.append(reinterpret_cast<const char*>(raw.data()), raw.size());
  };
  const RecordSlot first = first_slot();
  append({&first, 1});
  for (const Piece& piece : pieces) append({piece.segment->slots.get(), piece.to});
  return bytes;
}

Status Recorder::write_ring(const std::string& path) {
  {
    const std::lock_guard lifecycle(lifecycle_);
    if (file_.is_at(path))
      return {Code::kInvalidArgument,
              "Cannot write " + path +
                  ": this rank records its timeline there. Name another file, or read this one."};
  }
  const std::lock_guard one_file(ring_files_);
  const std::vector<Piece> pieces = pieces_of_ring();
  std::vector<std::span<const RecordSlot>> parts;
  for (const Piece& piece : pieces) parts.emplace_back(piece.segment->slots.get(), piece.to);
  return write_whole(path, parts);
}

}  // namespace rueda::trace
