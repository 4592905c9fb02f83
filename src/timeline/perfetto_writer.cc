// Perfetto's TrackEvent format, written with protozero. The numbers are those of the fields in
// protos/perfetto/trace/ of Perfetto (stable by its rules).
#include <algorithm>
#include <protozero/pbf_writer.hpp>
#include <unordered_map>

#include "timeline/trace_writer.h"
#include "timeline/units.h"

namespace rueda::timeline {
namespace {

using protozero::pbf_writer;

namespace trace_message {
constexpr uint32_t kPacket = 1;
}
namespace packet {
constexpr uint32_t kClockSnapshot = 6, kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kInternedData = 12,
                   kSequenceFlags = 13, kTrackDescriptor = 60;
constexpr uint32_t kStateCleared = 1, kNeedsState = 2;
}  // namespace packet
namespace snapshot {
constexpr uint32_t kClocks = 1, kPrimary = 2;
constexpr uint32_t kId = 1, kTimestamp = 2;       // of Clock
constexpr uint32_t kRealtime = 1, kBoottime = 6;  // ids
}  // namespace snapshot
namespace descriptor {
constexpr uint32_t kUuid = 1, kName = 2, kProcess = 3, kParent = 5, kCounter = 8, kChildOrder = 11,
                   kOrder = 12;
constexpr int32_t kExplicit = 3;                // of ChildTracksOrdering
constexpr uint32_t kPid = 1, kProcessName = 6;  // of ProcessDescriptor
constexpr uint32_t kUnit = 3;                   // of CounterDescriptor
constexpr int32_t kUnitCount = 2, kUnitBytes = 3;
}  // namespace descriptor
namespace track_event {
constexpr uint32_t kAnnotations = 4, kType = 9, kNameIid = 10, kTrack = 11, kCounterValue = 30, kFlows = 47,
                   kEndingFlows = 48;
constexpr int32_t kBegin = 1, kEnd = 2, kInstant = 3, kCounter = 4;
}  // namespace track_event
namespace annotation {
constexpr uint32_t kIntValue = 4, kStringValue = 6, kName = 10;
}
namespace interned {
constexpr uint32_t kEventNames = 2, kIid = 1, kName = 2;
}

constexpr uint32_t kClockSequence = 0x7FFF'FFFF;       // no rank's
constexpr uint64_t kTracksOfRank = uint64_t{1} << 32;  // uuids: rank + 1, then the track
constexpr uint64_t kTracksOfHosts = uint64_t{1} << 63;

// From the top: what the rank did, its messages by peer, counters, tensors.
constexpr int32_t kCounterOrder = 1 << 30, kTensorsOrder = kCounterOrder + 1;
int32_t order_of(Row row) {
  return static_cast<int32_t>(row.kind) * (1 << 26) + (std::max(row.peer, 0) << 8) + std::min(row.lane, 255);
}

class PerfettoWriter final : public TraceWriter {
 public:
  // Times without a clock are BOOTTIME to Perfetto; here they are the time of rank 0. With this pair the page
  // shows the time of day.
  PerfettoWriter(Nanos start, int64_t start_micros) {
    pbf_writer trace(bytes_);
    pbf_writer packet(trace, trace_message::kPacket);
    packet.add_uint32(packet::kSequence, kClockSequence);
    pbf_writer snapshot(packet, packet::kClockSnapshot);
    const auto add_clock = [&snapshot](uint32_t id, uint64_t when) {
      pbf_writer clock(snapshot, snapshot::kClocks);
      clock.add_uint32(snapshot::kId, id);
      clock.add_uint64(snapshot::kTimestamp, when);
    };
    add_clock(snapshot::kBoottime, static_cast<uint64_t>(start));
    add_clock(snapshot::kRealtime, static_cast<uint64_t>(start_micros) * 1'000);
    snapshot.add_enum(snapshot::kPrimary, snapshot::kBoottime);
  }

  void begin_rank(const RankFile& file) override {
    sequence_ = static_cast<uint32_t>(++ranks_begun_);
    names_.clear();
    tracks_.clear();
    rank_ = static_cast<uint64_t>(ranks_begun_) * kTracksOfRank;
    {
      pbf_writer trace(bytes_);
      pbf_writer packet(trace, trace_message::kPacket);
      packet.add_uint32(packet::kSequence, sequence_);
      packet.add_uint32(packet::kSequenceFlags, packet::kStateCleared);
    }
    describe_track(rank_, fmt::format("rank {}", file.rank), host_of(file), file.rank,
                   [](pbf_writer& track) { track.add_enum(descriptor::kChildOrder, descriptor::kExplicit); });
  }

  void slice_begin(Row row, std::string_view name, Nanos begin, std::span<const Detail> details) override {
    event(track_event::kBegin, track_of(row), name, begin, details);
  }
  void slice_end(Row row, Nanos end, std::string_view /*result*/) override {
    event(track_event::kEnd, track_of(row), {}, end, {});
  }

  void set_arrows(Arrows arrows) override { arrows_ = std::move(arrows); }

  void counter(Counter which, Nanos when, int64_t value) override {
    const uint64_t track = track_of(which);
    pbf_writer trace(bytes_);
    pbf_writer packet(trace, trace_message::kPacket);
    packet.add_uint64(packet::kTimestamp, static_cast<uint64_t>(when));
    packet.add_uint32(packet::kSequence, sequence_);
    pbf_writer track_event(packet, packet::kTrackEvent);
    track_event.add_enum(track_event::kType, track_event::kCounter);
    track_event.add_uint64(track_event::kTrack, track);
    track_event.add_int64(track_event::kCounterValue, value);
  }

  void instant(Row row, std::string_view name, Nanos when) override {
    event(track_event::kInstant, track_of(row), name, when, {});
  }

  void ready(Row row, Rank member, Nanos when) override {
    event(track_event::kInstant, track_of(row), "rank " + std::to_string(member) + " is ready", when, {});
  }

  void gap(int64_t records) override {
    const Detail missing{"records", records};
    if (last_ != 0)
      event(track_event::kInstant, track_of(kEventsRow), "RECORDS_MISSING", last_, {&missing, 1});
  }

  std::string take() override { return std::exchange(bytes_, {}); }
  std::string finish() override { return take(); }

 private:
  static constexpr int32_t kNoOrder = -1;  // of tensors: Perfetto's own

  // Ranks of one host are below it. Its clock is theirs.
  uint64_t host_of(const RankFile& file) {
    const auto [at, is_new] = hosts_.try_emplace(file.host_key, kTracksOfHosts + hosts_.size() + 1);
    if (!is_new) return at->second;
    std::string name = fmt::format("host {}", file.host);
    if (!file.clock.is_empty())
      name += fmt::format(", clock +- {}", time_text(static_cast<double>(file.clock.at(file.last).bound)));
    describe(at->second, [&](pbf_writer& track) {
      track.add_enum(descriptor::kChildOrder, descriptor::kExplicit);
      pbf_writer process(track, descriptor::kProcess);
      process.add_int32(descriptor::kPid, static_cast<int32_t>(hosts_.size()));  // no real one
      process.add_string(descriptor::kProcessName, name);
    });
    return at->second;
  }

  uint64_t track_of(Row row) {
    if (row.kind != Row::Kind::kTensor) return track_of(row.name(), rank_, order_of(row));
    return track_of(row.name(), track_of("tensors", rank_, kTensorsOrder), kNoOrder);
  }

  uint64_t track_of(Counter which) {
    const std::string name(name_of(which));
    const auto [at, is_new] = tracks_.try_emplace("c" + name, rank_ + tracks_.size() + 1);
    if (!is_new) return at->second;
    describe_track(at->second, name, rank_, kCounterOrder, [&](pbf_writer& track) {
      pbf_writer counter(track, descriptor::kCounter);
      counter.add_enum(descriptor::kUnit, which == Counter::kBytesUnderWay || which == Counter::kSentRate
                                              ? descriptor::kUnitBytes
                                              : descriptor::kUnitCount);
    });
    return at->second;
  }

  // Rows and tensors may have the same name.
  uint64_t track_of(const std::string& name, uint64_t parent, int32_t order) {
    const auto [at, is_new] =
        tracks_.try_emplace((order == kNoOrder ? "t" : "r") + name, rank_ + tracks_.size() + 1);
    if (!is_new) return at->second;
    describe_track(at->second, name, parent, order, [](pbf_writer&) {});
    return at->second;
  }

  // more(track): adds further fields.
  template <class More>
  void describe_track(uint64_t uuid, const std::string& name, uint64_t parent, int32_t order,
                      const More& more) {
    describe(uuid, [&](pbf_writer& track) {
      track.add_string(descriptor::kName, name);
      track.add_uint64(descriptor::kParent, parent);
      if (order != kNoOrder) track.add_int32(descriptor::kOrder, order);
      more(track);
    });
  }
  template <class Fields>
  void describe(uint64_t uuid, const Fields& fields) {
    pbf_writer trace(bytes_);
    pbf_writer packet(trace, trace_message::kPacket);
    packet.add_uint32(packet::kSequence, sequence_);
    pbf_writer track(packet, packet::kTrackDescriptor);
    track.add_uint64(descriptor::kUuid, uuid);
    fields(track);
  }

  void event(int32_t type, uint64_t track, std::string_view name, Nanos when,
             std::span<const Detail> details) {
    last_ = when;
    const auto [at, is_new] = name.empty() ? std::pair(names_.end(), false)
                                           : names_.try_emplace(std::string(name), names_.size() + 1);
    pbf_writer trace(bytes_);
    pbf_writer packet(trace, trace_message::kPacket);
    packet.add_uint64(packet::kTimestamp, static_cast<uint64_t>(when));
    packet.add_uint32(packet::kSequence, sequence_);
    packet.add_uint32(packet::kSequenceFlags, packet::kNeedsState);
    if (is_new) {
      pbf_writer data(packet, packet::kInternedData);
      pbf_writer entry(data, interned::kEventNames);
      entry.add_uint64(interned::kIid, at->second);
      entry.add_string(interned::kName, at->first);
    }
    pbf_writer track_event(packet, packet::kTrackEvent);
    for (const Detail& detail : details) {
      pbf_writer one(track_event, track_event::kAnnotations);
      if (detail.text.empty())
        one.add_int64(annotation::kIntValue, detail.value);
      else
        one.add_string(annotation::kStringValue, detail.text.data(), detail.text.size());
      one.add_string(annotation::kName, detail.name.data(), detail.name.size());
    }
    track_event.add_enum(track_event::kType, type);
    if (!name.empty()) track_event.add_uint64(track_event::kNameIid, at->second);
    track_event.add_uint64(track_event::kTrack, track);
    if (type != track_event::kBegin) return;
    const Arrows arrows = std::exchange(arrows_, {});
    for (const uint64_t arrow : arrows.starting) track_event.add_fixed64(track_event::kFlows, arrow);
    if (arrows.ending != 0) track_event.add_fixed64(track_event::kEndingFlows, arrows.ending);
  }

  Arrows arrows_;  // of the next slice
  std::string bytes_;
  int64_t ranks_begun_ = 0;
  uint32_t sequence_ = 0;
  uint64_t rank_ = 0;                                // the track of this rank
  std::unordered_map<std::string, uint64_t> hosts_;  // by the key of their clock: uuids
  Nanos last_ = 0;
  std::unordered_map<std::string, uint64_t> names_;   // of this sequence: iids
  std::unordered_map<std::string, uint64_t> tracks_;  // of this rank: uuids
};

}  // namespace

std::unique_ptr<TraceWriter> make_perfetto_writer(Nanos start, int64_t start_micros) {
  return std::make_unique<PerfettoWriter>(start, start_micros);
}

}  // namespace rueda::timeline
