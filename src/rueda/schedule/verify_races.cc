#include "rueda/schedule/verify_parts.h"

namespace rueda::schedule {

Ancestors::Ancestors(const Schedule& schedule)
    : words_((schedule.steps.size() + 63) / 64), bits_(schedule.steps.size() * words_) {
  for (size_t step = 0; step < schedule.steps.size(); ++step) {
    uint64_t* mine = &bits_[step * words_];
    for (int32_t earlier : schedule.steps[step].after) {
      const uint64_t* theirs = &bits_[earlier * words_];
      for (size_t word = 0; word <= static_cast<size_t>(earlier) / 64; ++word) mine[word] |= theirs[word];
      mine[earlier / 64] |= uint64_t{1} << (earlier % 64);
    }
  }
}

namespace {

struct Accesses {
  int32_t writer = -1;
  std::vector<int32_t> readers;  // since writer
};

bool overlap_partly(const Slice& a, const Slice& b) {
  if (a.count == 0 || b.count == 0 || (a.begin == b.begin && a.count == b.count)) return false;
  return a.begin < b.begin + b.count && b.begin < a.begin + a.count;
}

}  // namespace

// Steps are checked in the order of the list: a write must come after the previous writer and all readers
// since, a read after the previous writer. This also orders older accesses.
Status check_races(Rank rank, const Schedule& schedule, const Ancestors& ancestors, bool is_aliased) {
  std::array<IntervalMap<Accesses>, kBufferCount> buffers;
  const auto index = [&](Buffer buffer) {
    return is_aliased && buffer == Buffer::kOutput ? size_t{0} : static_cast<size_t>(buffer);
  };
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    int32_t conflict = -1;
    const auto require = [&](int32_t earlier) {
      if (earlier >= 0 && earlier != static_cast<int32_t>(i) && !ancestors.precedes(earlier, i))
        conflict = earlier;
    };
    for (const Slice* from : {&step.from, &step.from2}) {
      if (index(from->buffer) == index(step.to.buffer) && overlap_partly(step.to, *from))
        return step_fault(rank, i, schedule, "overwrites part of what it reads");
      buffers[index(from->buffer)].visit(from->begin, from->begin + from->count,
                                         [&](int64_t, int64_t, Accesses& accesses) {
                                           require(accesses.writer);
                                           accesses.readers.push_back(static_cast<int32_t>(i));
                                         });
    }
    auto& written = buffers[index(step.to.buffer)];
    written.visit(step.to.begin, step.to.begin + step.to.count,
                  [&](int64_t, int64_t, const Accesses& accesses) {
                    require(accesses.writer);
                    for (int32_t reader : accesses.readers) require(reader);
                  });
    written.assign(step.to.begin, step.to.begin + step.to.count,
                   {.writer = static_cast<int32_t>(i), .readers = {}});
    if (conflict >= 0)
      return step_fault(rank, i, schedule,
                        "races with step " + std::to_string(conflict) +
                            (is_aliased ? " when input and output are one" : ""));
  }
  return Status::ok();
}

}  // namespace rueda::schedule
