#include "timeline/link_speeds.h"

#include <algorithm>
#include <cmath>

namespace rueda::timeline {
namespace {

constexpr double kSlow = 0.5;  // of what the median of the others does
// With short messages. One that shares its port with those of another link does half of one that does not: of
// two links at 300 Mbit/s, 7 MB/s, and 16 MB/s.
constexpr double kSlowIfShort = 0.25;
// Less says nothing about a link. A slow link, by its nature, moves few bytes: at 1 MB/s four in 4 s.
constexpr int64_t kLeastBytes = 512 << 10;
constexpr Nanos kLeastBusy = 50 * kMillisecond;
// Linux may acknowledge the last bytes of a message so much later if the receiver has not read them, because
// its rank is late (TCP_DELACK_MIN). Until then the link counts as busy.
constexpr Nanos kLateAcknowledgement = 40 * kMillisecond;
// An end that sends to many at once shares its port among them, as in a broadcast. It is not slow if it moves
// so many times the bytes of the median end.
constexpr double kMovesMore = 1.5;
constexpr size_t kLeastOthers = 2;  // with which a pair is compared
// A link that moved so small a part of what another one of its end moved, carries control messages only.
constexpr int64_t kControlPart = 8;

// Short messages are slower than long ones on the same link, because each takes a round trip and two wakes as
// well: with 4 hosts on 2 cores, those of 32 KiB did 5 MB/s and those of 128 KiB 14. So a link is compared
// only with those of which the messages are not longer. From this size on, all are alike.
constexpr int64_t kLongMessage = 256 << 10;
constexpr double kStepsPerOctave = 4;
constexpr int kLongStep = 72;  // of kLongMessage

using Speeds = std::map<Rank, double>;

// The mean size of its messages, in steps of a quarter of an octave.
int step_of(const LinkTotal& total) {
  if (total.pauses <= 0) return kLongStep;
  const int64_t bytes = std::clamp<int64_t>(total.bytes / total.pauses, 1, kLongMessage);
  return static_cast<int>(kStepsPerOctave * std::log2(static_cast<double>(bytes)));
}
// Whether the messages of one are not longer than those of a link with this step.
bool is_comparable(const LinkTotal& one, int step) { return step_of(one) <= step + 1; }

Rank sender_of(const std::pair<Rank, Rank>& link) { return link.first; }
Rank receiver_of(const std::pair<Rank, Rank>& link) { return link.second; }
using EndOf = Rank (*)(const std::pair<Rank, Rank>&);

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

double median_of_others(const Speeds& all, Rank mine) {
  std::vector<double> others;
  for (const auto& [end, speed] : all)
    if (end != mine) others.push_back(speed);
  return median(std::move(others));
}

// Asked for each of many links: it sorts once those with which a link of this step is compared.
class MedianOfOthers {
 public:
  void add(double speed, int step) { all_.emplace_back(speed, step); }
  // mine: one of them. 0: they are too few.
  double operator()(double mine, int step) {
    std::vector<double>& sorted = sorted_[step];
    if (sorted.empty()) {
      for (const auto& [speed, its_step] : all_)
        if (its_step <= step + 1) sorted.push_back(speed);
      std::ranges::sort(sorted);
    }
    if (sorted.size() <= kLeastOthers) return 0;
    const size_t middle = (sorted.size() - 2) / 2;  // of the others
    return sorted[mine <= sorted[middle] ? middle + 1 : middle];
  }

 private:
  std::vector<std::pair<double, int>> all_;
  std::map<int, std::vector<double>> sorted_;
};

// What the receiver says; 0: too little.
double awaited_speed(const LinkTotal& total) {
  if (total.awaited_bytes < kLeastBytes || total.awaited < kLeastBusy) return 0;
  return static_cast<double>(total.awaited_bytes) / static_cast<double>(total.awaited);
}

// If both ends say so; or if the sender does, also if each pause had ended with a late acknowledgement.
bool is_slow(const LinkTotal& total, double usual) {
  const double speed = speed_of(total);
  if (speed <= 0 || speed >= kSlow * usual) return false;
  if (awaited_speed(total) > 0 && speed < kSlowIfShort * usual) return true;
  const double surely_busy =
      static_cast<double>(total.busy) - static_cast<double>(total.pauses) * kLateAcknowledgement;
  return surely_busy > 0 && static_cast<double>(total.bytes) < kSlow * usual * surely_busy;
}

Speeds fastest(const LinkTotals& totals, EndOf end, int step = kLongStep) {
  Speeds best;
  for (const auto& [link, total] : totals)
    if (const double speed = speed_of(total); speed > 0 && is_comparable(total, step)) {
      double& mine = best[end(link)];
      mine = std::max(mine, speed);
    }
  return best;
}

// Those that move much more than others in this direction.
std::map<Rank, bool> crowded(const LinkTotals& totals, EndOf end) {
  Speeds bytes;
  for (const auto& [link, total] : totals) bytes[end(link)] += static_cast<double>(total.bytes);
  std::map<Rank, bool> is_crowded;
  for (const auto& [one, mine] : bytes)
    is_crowded[one] = bytes.size() > 2 && mine > kMovesMore * median_of_others(bytes, one);
  return is_crowded;
}

class Search {
 public:
  explicit Search(const LinkTotals& totals) : totals_(totals) {}

  std::vector<SlowLink> run() {
    search_ends(sender_of, slow_out_);
    // With two ends, what one sends slowly the other receives slowly: the sender is named.
    if (fastest(totals_, sender_of).size() > 2) search_ends(receiver_of, slow_in_);
    search_pairs();
    return take();
  }

 private:
  struct Found {
    double speed, usual;
  };
  // Ends of which even the fastest link is slow.
  void search_ends(EndOf end, std::map<Rank, Found>& slow) {
    const Speeds best = fastest(totals_, end);
    std::map<Rank, bool> is_crowded = crowded(totals_, end);
    const std::map<Rank, int> steps = longest(end);
    std::map<int, Speeds> comparable;  // by step
    for (const auto& [one, speed] : best) {
      const int step = steps.at(one);
      const auto [others, is_new] = comparable.try_emplace(step);
      if (is_new) others->second = fastest(totals_, end, step);
      const double usual = median_of_others(others->second, one);
      std::vector<std::pair<Rank, Rank>> mine;
      bool are_slow = !is_crowded[one];
      for (const auto& [link, total] : totals_) {
        if (end(link) != one || speed_of(total) <= 0) continue;
        mine.push_back(link);
        are_slow = are_slow && is_slow(total, usual);
      }
      if (!are_slow) continue;
      // An end with one link alone: the fault may be at either end of that.
      if (mine.size() == 1 && !may_be_slow(mine.front(), end)) pairs_[mine.front()] = {speed, usual};
      if (mine.size() > 1) slow[one] = {speed, usual};
    }
  }

  // Of each end: the step of the link with the longest messages. It is the fastest of its links, or would be.
  [[nodiscard]] std::map<Rank, int> longest(EndOf end) const {
    std::map<Rank, int> steps;
    for (const auto& [link, total] : totals_)
      if (speed_of(total) > 0) {
        int& step = steps[end(link)];
        step = std::max(step, step_of(total));
      }
    return steps;
  }

  // Whether this end has other links that are used and of which too little is known: perhaps all are slow,
  // and it would be wrong to blame a pair.
  [[nodiscard]] bool may_be_slow(const std::pair<Rank, Rank>& link, EndOf end) const {
    const int64_t least = totals_.at(link).bytes / kControlPart;
    return std::ranges::any_of(totals_, [&](const auto& each) {
      const auto& [other, total] = each;
      return other != link && end(other) == end(link) && total.bytes > least && speed_of(total) <= 0;
    });
  }

  void search_pairs() {
    std::map<Rank, bool> sends_more = crowded(totals_, sender_of),
                         receives_more = crowded(totals_, receiver_of);
    std::map<std::pair<Rank, Rank>, double> speeds;
    for (const auto& [link, total] : totals_)
      if (const double speed = speed_of(total);
          speed > 0 && !slow_out_.contains(link.first) && !slow_in_.contains(link.second))
        speeds[link] = speed;
    MedianOfOthers usual_beside;
    for (const auto& [link, speed] : speeds) usual_beside.add(speed, step_of(totals_.at(link)));
    for (const auto& [link, speed] : speeds) {
      const double usual = usual_beside(speed, step_of(totals_.at(link)));
      if (!is_slow(totals_.at(link), usual) || sends_more[link.first] || receives_more[link.second]) continue;
      if (!may_be_slow(link, sender_of) && !may_be_slow(link, receiver_of))
        pairs_.try_emplace(link, Found{speed, usual});
    }
  }

  [[nodiscard]] std::vector<SlowLink> take() const {
    std::vector<SlowLink> slow;
    const auto add = [&slow](SlowLink one) {
      const auto same = std::ranges::find_if(slow, [&](const SlowLink& other) {
        if (one.other < 0) return other.other < 0 && other.end == one.end;
        return other.end == one.other && other.other == one.end;
      });
      if (same == slow.end()) return slow.push_back(one);
      const bool is_pair = one.other >= 0;  // its sender is the receiver of the other direction
      same->sends = same->sends || (is_pair ? one.receives : one.sends);
      same->receives = same->receives || (is_pair ? one.sends : one.receives);
      if (one.speed >= same->speed) return;
      same->speed = one.speed;
      same->usual = one.usual;
    };
    const auto new_one = [](Rank end, Rank other, bool sends, const Found& found) {
      return SlowLink{.end = end,
                      .other = other,
                      .sends = sends,
                      .receives = !sends,
                      .speed = found.speed,
                      .usual = found.usual};
    };
    for (const auto& [end, found] : slow_out_) add(new_one(end, -1, true, found));
    for (const auto& [end, found] : slow_in_) add(new_one(end, -1, false, found));
    for (const auto& [link, found] : pairs_) add(new_one(link.first, link.second, true, found));
    return slow;
  }

  const LinkTotals& totals_;
  std::map<Rank, Found> slow_out_, slow_in_;
  std::map<std::pair<Rank, Rank>, Found> pairs_;
};

}  // namespace

LinkTotal& LinkTotal::operator+=(const LinkTotal& more) {
  bytes += more.bytes;
  busy += more.busy;
  pauses += more.pauses;
  awaited_bytes += more.awaited_bytes;
  awaited += more.awaited;
  return *this;
}

LinkTotal operator-(const LinkTotal& later, const LinkTotal& before) {
  return {.bytes = later.bytes - before.bytes,
          .busy = later.busy - before.busy,
          .pauses = later.pauses - before.pauses,
          .awaited_bytes = later.awaited_bytes - before.awaited_bytes,
          .awaited = later.awaited - before.awaited};
}

LinkTotal between(const LinkTotal& before, const LinkTotal& after, double part) {
  const auto at = [part](int64_t from, int64_t to) {
    return from + static_cast<int64_t>(part * static_cast<double>(to - from));
  };
  return {.bytes = at(before.bytes, after.bytes),
          .busy = at(before.busy, after.busy),
          .pauses = at(before.pauses, after.pauses),
          .awaited_bytes = at(before.awaited_bytes, after.awaited_bytes),
          .awaited = at(before.awaited, after.awaited)};
}

std::pair<Rank, Rank> ends_of(const SlowLink& link) {
  return link.other < 0 ? std::pair(link.end, link.other) : std::minmax({link.end, link.other});
}

// Both ends measure too little, never too much: the sender because acknowledgements come late, the receiver
// because its process gets no core. So the higher of the two is the speed.
double speed_of(const LinkTotal& total) {
  if (total.bytes < kLeastBytes || total.busy < kLeastBusy) return 0;
  return std::max(static_cast<double>(total.bytes) / static_cast<double>(total.busy), awaited_speed(total));
}

std::vector<SlowLink> find_slow_links(const LinkTotals& totals) { return Search(totals).run(); }

std::map<Rank, double> fastest_out(const LinkTotals& totals) { return fastest(totals, sender_of); }
std::map<Rank, double> fastest_in(const LinkTotals& totals) { return fastest(totals, receiver_of); }

}  // namespace rueda::timeline
