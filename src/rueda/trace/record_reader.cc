#include "rueda/trace/record_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <initializer_list>

#include "rueda/base/limits.h"

namespace rueda::trace {
namespace {

constexpr size_t kBufferSlots = 4'096;  // 128 KiB for each open file
constexpr size_t kMaxTexts = 1u << 20;
constexpr std::string_view kOtherText = "(other)";

// Bounds that only damaged bytes pass. They keep sums and differences of a file's numbers within 64 bits.
constexpr int64_t kMostMissing = int64_t{1} << 40;  // records in one gap
constexpr int64_t kMost = int64_t{1} << 58;         // nanoseconds: nine years since a host started; or bytes

bool is_possible(std::initializer_list<int64_t> numbers) {
  return std::ranges::all_of(numbers, [](int64_t number) { return number >= -kMost && number <= kMost; });
}

}  // namespace

uint32_t Names::id_of(std::string_view text) {
  if (text.empty()) return 0;
  if (const auto at = ids_.find(text); at != ids_.end()) return at->second;
  if (texts_.size() >= kMaxTexts && text != kOtherText) return id_of(kOtherText);
  texts_.emplace_back(text);
  const auto id = static_cast<uint32_t>(texts_.size() - 1);
  ids_.emplace(texts_.back(), id);
  return id;
}

RecordReader::RecordReader(UniqueFd fd, std::string path, Names& names)
    : fd_(std::move(fd)), path_(std::move(path)), names_(&names), buffer_(kBufferSlots) {}

Result<RecordReader> RecordReader::open(const std::string& path, Names& names) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO without a writer
  struct stat info {};
  if (!fd.is_open() || fstat(fd.get(), &info) != 0)
    return Status(Code::kUnavailable, "Cannot read " + path + ": " + std::strerror(errno) + ".");
  if (!S_ISREG(info.st_mode)) return Status(Code::kInvalidArgument, path + " is not a file.");
  RecordReader reader(std::move(fd), path, names);
  const RecordSlot* const first = reader.take(1);
  if (info.st_size == 0)
    return Status(Code::kInvalidArgument,
                  path + " is empty: the disk was full, or the process ended as soon as it had begun.");
  if (first == nullptr || first->kind != RecordSlotKind::kFile || first->a != kFileMagic) {
    return Status(Code::kInvalidArgument,
                  path +
                      " is not a record file of rueda. With RUEDA_TIMELINE=t.json they are called "
                      "t.json.rank0.rec, t.json.rank1.rec and so on.");
  }
  if (first->b != kRecordVersion) {
    return Status(Code::kInvalidArgument, path + " has version " + std::to_string(first->b) +
                                              " of the format, and this rueda reads " +
                                              std::to_string(kRecordVersion) +
                                              "; use the rueda that recorded it.");
  }
  reader.at_end_ = {.records = first->c, .error = first->extra};
  return reader;
}

const RecordSlot* RecordReader::take(size_t slots) {
  if (at_ + slots <= end_) {
    at_ += slots;
    return &buffer_[at_ - slots];
  }
  std::move(buffer_.begin() + static_cast<ptrdiff_t>(at_), buffer_.begin() + static_cast<ptrdiff_t>(end_),
            buffer_.begin());
  end_ -= at_;
  at_ = 0;
  const auto start = static_cast<off_t>(read_slots_) * static_cast<off_t>(sizeof(RecordSlot));
  size_t bytes = 0;
  const size_t room = (buffer_.size() - end_) * sizeof(RecordSlot);
  auto* const to = reinterpret_cast<std::byte*>(buffer_.data() + end_);
  while (bytes < room) {
    const ssize_t n = ::pread(fd_.get(), to + bytes, room - bytes, start + static_cast<off_t>(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(std::strerror(errno));
    if (n <= 0) break;
    bytes += static_cast<size_t>(n);
  }
  read_slots_ += static_cast<int64_t>(bytes / sizeof(RecordSlot));
  end_ += bytes / sizeof(RecordSlot);
  if (slots > end_) return nullptr;
  at_ = slots;
  return buffer_.data();
}

const Record* RecordReader::fail(const std::string& what) {
  if (fault_.is_ok())
    fault_ = {Code::kInvalidArgument, path_ + " is damaged after " +
                                          std::to_string(read_slots_ - static_cast<int64_t>(end_ - at_)) +
                                          " records (" + what + "); what comes before is used."};
  return nullptr;
}

bool RecordReader::read_name(const RecordSlot& first) {
  const size_t bytes = first.extra;
  if (bytes > kMaxNameBytes) return fail("a name is too long"), false;
  const uint32_t id = first.name;
  --at_;  // take it again, with the slots of its text
  const RecordSlot* const all = take(slots_of_name(bytes));
  if (all == nullptr) return false;
  segment_[id] = names_->id_of({reinterpret_cast<const char*>(&all->a), bytes});
  return true;
}

uint32_t RecordReader::name(uint32_t id) const {
  const auto at = segment_.find(id);
  return at == segment_.end() ? 0 : at->second;
}

bool RecordReader::is_stopped() const {
  RecordSlot first;
  const ssize_t bytes = ::pread(fd_.get(), &first, sizeof first, 0);
  return bytes == sizeof first && first.kind == RecordSlotKind::kFile && first.detail == kStoppedFile;
}

void RecordReader::rewind() {
  at_ = end_ = 0;
  read_slots_ = 0;
  segment_.clear();
  fault_ = Status::ok();
}

const Record* RecordReader::next() {
  while (fault_.is_ok()) {
    const RecordSlot* const slot = take(1);
    if (slot == nullptr) return at_end_.records > 0 ? read_gap(std::exchange(at_end_, {})) : nullptr;
    if (slot->kind == RecordSlotKind::kFile) continue;
    if (slot->kind == RecordSlotKind::kSegment) {
      if (slot->a != kSegmentMagic) return fail("a segment has no mark");
      segment_.clear();
      continue;
    }
    if (slot->kind != RecordSlotKind::kName) return read(*slot);
    if (!read_name(*slot)) return nullptr;
  }
  return nullptr;
}

const Record* RecordReader::read_tensor(const RecordSlot& in) {
  if (!is_possible({in.a, in.c})) return fail("the time of a tensor is out of range");
  const auto text = [this](int64_t id) { return names_->text(name(static_cast<uint32_t>(id))); };
  TensorRecord& tensor = record_.emplace<TensorRecord>();
  tensor.name = text(in.name);
  tensor.result = text(in.b);
  tensor.operation = in.extra;
  tensor.submitted = in.a;
  (in.detail == kFailedTensor ? tensor.failed = in.c : tensor.call = static_cast<uint32_t>(in.c));
  return &record_;
}

const Record* RecordReader::read_gap(Gap gap) {
  if (gap.records < 0 || gap.records > kMostMissing) return fail("the length of a gap is out of range");
  return record_ = gap, &record_;
}

const Record* RecordReader::read(const RecordSlot& slot) {
  const size_t slots = slot.kind == RecordSlotKind::kCall    ? kSlotsOfCall
                       : slot.kind == RecordSlotKind::kEpoch ? kSlotsOfEpoch
                                                             : 1;
  --at_;
  const RecordSlot* const in = take(slots);
  if (in == nullptr) return nullptr;
  const auto text = [this](uint32_t id) { return names_->text(name(id)); };
  switch (in->kind) {
    case RecordSlotKind::kCall: {
      if (in[1].kind != RecordSlotKind::kCallMore || in[2].kind != RecordSlotKind::kCallMore ||
          in->detail >= count_of(Collective{}))
        return fail("a call is not whole");
      Call& call = record_.emplace<Call>();
      static_cast<CallTrace&>(call) = unpack_call(in);
      if (!is_possible({call.submitted, call.ordered, call.started, call.transfer_began, call.unpack_began,
                        call.ended, call.bytes}))
        return fail("a number of a call is out of range");
      call.name_id = name(in[0].name);
      call.backend_id = name(in[1].name);
      call.name = names_->text(call.name_id);
      call.backend = names_->text(call.backend_id);
      call.algorithm = text(in[2].name);
      return &record_;
    }
    case RecordSlotKind::kEpoch: {
      if (in[1].kind != RecordSlotKind::kEpochMore || in[2].kind != RecordSlotKind::kEpochMore)
        return fail("an epoch is not whole");
      EpochRecord& epoch = record_.emplace<EpochRecord>();
      static_cast<EpochTrace&>(epoch) = unpack_epoch(in);
      if (epoch.rank < 0 || epoch.rank >= epoch.size || epoch.size > kMaxRanks)
        return fail("a rank is out of range");
      if (!is_possible({epoch.began})) return fail("the time of an epoch is out of range");
      for (const auto& [into, from] : {std::pair(&epoch.host, 0), {&epoch.host_key, 1}, {&epoch.command, 2}})
        *into = text(in[from].name);
      return &record_;
    }
    case RecordSlotKind::kSpan: {
      if (in->detail >= count_of(SpanKind{})) return fail("a span has no known kind");
      const auto kind = static_cast<SpanKind>(in->detail);
      const bool has_amount = kind == SpanKind::kClock || kind == SpanKind::kLink ||
                              kind == SpanKind::kLinkPauses || kind == SpanKind::kLinkAwaited ||
                              is_message(kind);
      const TraceSpan read = unpack_span(*in);
      if (!is_possible({read.begin, read.end, has_amount ? read.value : 0}))
        return fail("a number of a span is out of range");
      Span& span = record_.emplace<Span>();
      static_cast<TraceSpan&>(span) = read;
      span.text_id = is_message(kind) ? 0 : name(in->name);
      span.text = names_->text(span.text_id);
      return &record_;
    }
    case RecordSlotKind::kTensor:
      return read_tensor(*in);
    case RecordSlotKind::kGap:
      return read_gap({.records = in->b, .error = in->extra});
    default:
      return fail("a record has no known kind");
  }
}

}  // namespace rueda::trace
