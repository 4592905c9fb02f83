#include "rueda/control/call_history.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "rueda/control/numbered_name.h"
#include "rueda/control/row_counts.h"

namespace rueda::control {
namespace {

constexpr size_t kMostCalls = 1 << 15;    // that are surely remembered
constexpr size_t kMostOfLanes = 1 << 21;  // in all lanes together
constexpr size_t kLeastOfLane = 1 << 12;
constexpr size_t kMostKinds = 1 << 14;   // if there are more, nothing repeats
constexpr size_t kMostRows = 1 << 22;    // in them; an alltoall has as many as the square of the ranks
constexpr size_t kMostOfStep = 1 << 14;  // calls
constexpr size_t kLeastTimes = 3;        // periods that are compared, also where few are remembered
constexpr size_t kLately = 256;          // a set without a call for so long, and for some steps, is idle
constexpr size_t kMostRounds = 32;       // until the ranks agree about the calls of a step
constexpr size_t kMostTried = 256;       // periods, for each lane
// Calls with a number alone are a step if there are that many of them, or there are few names without one:
// those came once, before the first step.
constexpr size_t kManyNumbered = 32;
// So many times as many repeats prove a step in which rows vary: a call that comes twice in a step with
// different rows repeats exactly before.
constexpr int kRepeatsOfVarying = 3;
constexpr size_t kProofWithoutOthers = 1 << 12;  // calls, where all are without a name and may have any rows

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
uint64_t weight_of(uint64_t kind) {
  uint64_t x = (kind + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// How many of the places, which ascend, are at `from` or behind it.
size_t count_since(std::span<const uint32_t> places, uint32_t from) {
  return static_cast<size_t>(places.end() - std::ranges::lower_bound(places, from));
}

}  // namespace

// Told apart by everything but the number, as bytes.
CallHistory::Keys CallHistory::keys_of(const SeenTensor& call) {
  Keys keys;
  Bucket bucket = call.bucket;
  Entry& entry = bucket.entries.front();
  if (const auto name = split_name(entry.name, entry.numbered_at)) {
    std::string key;
    name->put_key(key);
    const std::string of_set = std::to_string(bucket.process_set) + '\0' + key;
    keys.series = series_.try_emplace(of_set, static_cast<uint32_t>(series_.size() + 1)).first->second;
    entry.name = std::move(key);
    entry.numbered_at = 0;
  }
  const auto as_bytes = [&keys](const Bucket& described) {
    const Response response = described;
    const Bytes bytes = encode(std::span(&response, 1));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) +
           (keys.series == 0 ? 'p' : 'n');
  };
  keys.alike = keys.exact = as_bytes(bucket);
  if (may_have_varying_rows(bucket.what) && !entry.shape.empty() && !entry.rows.empty()) {
    entry.rows_vary = true;
    entry.shape.front() = 0;
    entry.rows = {};
    keys.alike = as_bytes(bucket);
  }
  return keys;
}

uint32_t CallHistory::kind_of(SeenTensor call) {
  Keys keys = keys_of(call);
  if (keys.series == 0) varying_names_.saw(keys.alike, keys.exact);
  const bool varies = keys.series == 0 && varying_names_.varies(keys.alike);
  const auto next = static_cast<uint32_t>(kinds_.size());
  const auto [known, is_new] = known_.try_emplace(varies ? keys.alike : keys.exact, next);
  if (!is_new) return known->second;
  rows_ += call.entry().rows.size();
  if (keys.series == 0) ++of_set_[call.bucket.process_set].plain_kinds;
  const uint32_t alike = alike_.try_emplace(std::move(keys.alike), next).first->second;
  has_variants_ = has_variants_ || alike != next;
  kinds_.push_back({.first = std::move(call),
                    .weight = weight_of(next),
                    .series = keys.series,
                    .alike = alike,
                    .varies = varies});
  return next;
}

void CallHistory::add(SeenTensor call) {
  if (kinds_.size() >= kMostKinds || rows_ >= kMostRows) clear();
  if (calls_.size() >= 2 * kMostCalls) trim();
  Call made{.set = call.bucket.process_set,
            .number = call.number,
            .seen = call.seen,
            .started = call.started,
            .ready = call.ready};
  made.kind = kind_of(std::move(call));
  calls_.push_back(made);
  enter(static_cast<uint32_t>(calls_.size() - 1));
}

void CallHistory::enter(uint32_t place) {
  const Call& call = calls_[place];
  OfSet& of_set = of_set_[call.set];
  of_set.places.push_back(place);
  if (kinds_[call.kind].series == 0) of_set.plain_end = place + 1;
}

void CallHistory::trim() {
  calls_.erase(calls_.begin(), calls_.end() - kMostCalls);
  for (auto& [set, of_set] : of_set_) {
    of_set.places.clear();
    of_set.plain_end = 0;
  }
  for (uint32_t place = 0; place < calls_.size(); ++place) enter(place);
  sets_looked_ = 0;
}

void CallHistory::clear() {
  VaryingNames names = std::move(varying_names_);
  *this = CallHistory();
  varying_names_ = std::move(names);
}

void CallHistory::make_lanes(const SetMembers& sets) {
  constexpr Rank kOthers = -1;  // who are in no set but the world
  std::map<Rank, std::vector<int32_t>> sets_of;
  for (const auto& [set, of_set] : of_set_) {
    if (set == 0) continue;
    for (const Rank rank : sets.at(set)) sets_of[rank].push_back(set);
  }
  if (of_set_.contains(0)) {
    sets_of[kOthers] = {};
    for (auto& [rank, seen] : sets_of) seen.push_back(0);
  }
  std::map<std::vector<int32_t>, uint32_t> known;
  lanes_.clear();
  for (auto& [set, of_set] : of_set_) of_set.lanes.clear();
  for (const auto& [rank, seen] : sets_of) {
    const auto lane = static_cast<uint32_t>(lanes_.size());
    if (!known.try_emplace(seen, lane).second) continue;
    lanes_.emplace_back().sets = seen;
    for (const int32_t set : seen) of_set_.at(set).lanes.push_back(lane);
  }
  looked_ = last_failed_ = 0;
  sets_looked_ = of_set_.size();
}

void CallHistory::look(const SetMembers& sets) {
  if (sets_looked_ != of_set_.size()) make_lanes(sets);
  const size_t most = std::clamp(kMostOfLanes / lanes_.size(), kLeastOfLane, 2 * kMostCalls);
  for (; looked_ < calls_.size(); ++looked_) {
    const Call& call = calls_[looked_];
    for (const uint32_t at : of_set_.at(call.set).lanes) {
      Lane& lane = lanes_[at];
      if (lane.places.size() >= most) {
        const auto half = static_cast<std::ptrdiff_t>(most / 2);
        lane.places.erase(lane.places.begin(), lane.places.begin() + half);
        lane.sums.erase(lane.sums.begin(), lane.sums.begin() + half);
        lane.alike_sums.erase(lane.alike_sums.begin(), lane.alike_sums.begin() + half);
      }
      lane.places.push_back(looked_);
      const Kind& kind = kinds_[call.kind];
      lane.sums.push_back(lane.sums.back() + kind.weight);
      lane.alike_sums.push_back(lane.alike_sums.back() + kinds_[kind.alike].weight);
    }
  }
}

std::optional<CallHistory::Period> CallHistory::period(std::span<const uint64_t> sums, const Proof& proof,
                                                       size_t least, size_t overlooked) {
  const size_t all = sums.size() - 1;
  const auto window = [&](size_t calls, size_t back) {
    return sums[all - back * calls] - sums[all - (back + 1) * calls];
  };
  for (size_t calls = std::max<size_t>(least, 1); calls <= std::min(all / kLeastTimes, kMostOfStep);
       ++calls) {
    const size_t proven = std::max(static_cast<size_t>(proof.repeats) + 1, (proof.calls + calls - 1) / calls);
    const size_t times = std::clamp(kMostCalls / calls, kLeastTimes, std::max(proven, kLeastTimes));
    if (calls * times > all || calls * times <= overlooked) continue;
    const uint64_t last = window(calls, 0);
    size_t back = 1;
    while (back < times && window(calls, back) == last) ++back;
    if (back == times) return Period{.calls = calls, .times = times};
  }
  return std::nullopt;
}

size_t CallHistory::overlooked_calls(const Lane& lane) const {
  size_t plain_kinds = 0;
  uint32_t plain_end = 0;
  for (const int32_t set : lane.sets) {
    const OfSet& of_set = of_set_.at(set);
    plain_kinds += of_set.plain_kinds;
    plain_end = std::max(plain_end, of_set.plain_end);
  }
  if (plain_end == 0) return 0;
  const size_t numbered = count_since(lane.places, plain_end);
  return numbered > kManyNumbered + 4 * plain_kinds ? 0 : numbered;
}

// A step of calls that differ in their rows alone, and of no others, may be a part of a longer one.
bool CallHistory::is_surely_step(const Lane& lane, const Proof& proof) const {
  const auto tells_steps_apart = [this](uint32_t place) {
    const Kind& kind = kinds_[calls_[place].kind];
    return kind.series == 0 || !may_have_varying_rows(kind.first.bucket.what);
  };
  if (std::ranges::any_of(std::span(lane.places).last(lane.step), tells_steps_apart)) return true;
  const Proof longer{.repeats = proof.repeats, .calls = kProofWithoutOthers};
  const std::optional<Period> found = period(lane.alike_sums, longer, lane.step, 0);
  return found && found->calls == lane.step;
}

// Each lane takes the least period that contains as many calls of its sets as the others need; what that has
// more, the others need in turn.
bool CallHistory::find_steps(uint32_t since, const Proof& proof) {
  Needed needed;
  for (const auto& [set, of_set] : of_set_)
    if (!of_set.places.empty() && of_set.places.back() >= since) needed[set] = 1;
  bool has_changed = true;
  for (size_t round = 0; round < kMostRounds && has_changed; ++round) {
    has_changed = false;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const auto at = static_cast<uint32_t>((last_failed_ + i) % lanes_.size());
      Lane& lane = lanes_[at];
      lane.step = 0;
      if (lane.places.empty() || lane.places.back() < since) continue;
      if (find_step_of(lane, proof, needed, has_changed)) continue;
      last_failed_ = at;
      return false;
    }
  }
  return !has_changed;
}

bool CallHistory::find_step_of(Lane& lane, const Proof& proof, Needed& needed, bool& has_changed) const {
  size_t least = 1;
  for (const int32_t set : lane.sets) {
    const auto wanted = needed.find(set);
    if (wanted == needed.end()) continue;
    const Places& places = of_set_.at(set).places;
    if (wanted->second > places.size()) return false;
    least = std::max(least, count_since(lane.places, places[places.size() - wanted->second]));
  }
  if (!find_step(lane, proof, least)) return false;
  const uint32_t first = lane.places[lane.places.size() - lane.step];
  for (const int32_t set : lane.sets) {
    const size_t has = count_since(of_set_.at(set).places, first);
    const auto wanted = needed.find(set);
    if (wanted == needed.end()) {
      if (has > 0) return false;  // its other ranks are not asked, because it is idle
    } else if (has > wanted->second) {
      wanted->second = has;
      has_changed = true;
    }
  }
  return true;
}

bool CallHistory::find_step(Lane& lane, const Proof& proof, size_t least) const {
  const size_t overlooked = overlooked_calls(lane);
  const std::span<const uint64_t> sums = ignores_rows_ ? lane.alike_sums : lane.sums;
  for (size_t tried = 0; tried < kMostTried; ++tried) {
    const std::optional<Period> found = period(sums, proof, least, overlooked);
    if (!found) return false;
    lane.step = found->calls;
    lane.times = found->times;
    Strides strides;
    if (check(lane, strides) && (!ignores_rows_ || is_surely_step(lane, proof))) return true;
    least = lane.step + 1;
  }
  return false;
}

bool CallHistory::recurs(const Call& call, const Call& before, Strides& strides) const {
  if (id_of(call) != id_of(before) || call.seen < before.started) return false;
  const uint32_t series = kinds_[call.kind].series;
  if (series == 0) return true;
  const int64_t stride = call.number - before.number;
  return stride >= 1 && strides.try_emplace(series, stride).first->second == stride;
}

// So that calls stand beside those of other windows that they may repeat.
CallHistory::Places CallHistory::in_order(std::span<const uint32_t> window) const {
  Places ordered(window.begin(), window.end());
  std::ranges::sort(ordered, {}, [&](uint32_t place) {
    return std::tuple(id_of(calls_[place]), calls_[place].number, place);
  });
  return ordered;
}

bool CallHistory::check(const Lane& lane, Strides& strides) const {
  const std::span<const uint32_t> all(lane.places);
  Places after = in_order(all.last(lane.step));
  for (size_t back = 1; back < lane.times; ++back) {
    Places before = in_order(all.subspan(all.size() - (back + 1) * lane.step, lane.step));
    for (size_t i = 0; i < lane.step; ++i)
      if (!recurs(calls_[after[i]], calls_[before[i]], strides)) return false;
    after = std::move(before);
  }
  return true;
}

std::optional<std::vector<SeenTensor>> CallHistory::last_step(const Proof& proof, const SetMembers& sets) {
  const auto is_known_set = [&](const auto& one) { return is_known(sets, one.first); };
  if (calls_.empty() || !std::ranges::all_of(of_set_, is_known_set)) return std::nullopt;
  look(sets);
  Strides strides;
  ignores_rows_ = false;
  std::optional<Places> step = find_last_step(proof, strides);
  if (!step && has_variants_) {
    ignores_rows_ = true;
    strides.clear();
    step = find_last_step({.repeats = kRepeatsOfVarying * proof.repeats, .calls = proof.calls}, strides);
  }
  if (!step) return std::nullopt;
  return learned(*step, strides);
}

std::optional<CallHistory::Places> CallHistory::find_last_step(const Proof& proof, Strides& strides) {
  // Most often this alone tells that nothing repeats.
  Lane& last = lanes_[of_set_.at(calls_.back().set).lanes.front()];
  if (!find_step(last, proof, 1)) return std::nullopt;
  const auto end = static_cast<uint32_t>(calls_.size());
  const uint32_t first = last.places[last.places.size() - last.step * last.times];
  const uint32_t lately = std::max<uint32_t>(2 * (end - first), kLately);
  if (!find_steps(end - std::min(end, lately), proof)) return std::nullopt;
  Places step;
  for (const Lane& lane : lanes_) {
    if (!check(lane, strides)) return std::nullopt;
    step.insert(step.end(), lane.places.end() - static_cast<std::ptrdiff_t>(lane.step), lane.places.end());
  }
  std::ranges::sort(step);
  step.erase(std::ranges::unique(step).begin(), step.end());
  return step;
}

void CallHistory::add_varying(const Lane& lane, Places& varying) const {
  const std::span<const uint32_t> all(lane.places);
  const Places last = in_order(all.last(lane.step));
  for (size_t back = 1; back < lane.times; ++back) {
    const Places before = in_order(all.subspan(all.size() - (back + 1) * lane.step, lane.step));
    for (size_t i = 0; i < last.size(); ++i)
      if (calls_[last[i]].kind != calls_[before[i]].kind) varying.push_back(last[i]);
  }
}

std::vector<SeenTensor> CallHistory::learned(const Places& places, const Strides& strides) {
  Places varying;
  for (const Lane& lane : lanes_)
    if (ignores_rows_ && lane.step > 0) add_varying(lane, varying);
  std::ranges::sort(varying);
  std::vector<SeenTensor> step = tensors(places, strides);
  varying_names_.plan_begins();
  for (size_t i = 0; i < step.size(); ++i) {
    Entry& entry = step[i].bucket.entries.front();
    const Kind& kind = kinds_[calls_[places[i]].kind];
    if (kind.varies || std::ranges::binary_search(varying, places[i])) {
      entry.rows_vary = true;
    } else if (kind.series == 0 && may_have_varying_rows(step[i].bucket.what)) {
      Keys keys = keys_of(step[i]);
      varying_names_.planned(std::move(keys.alike), std::move(keys.exact));
    }
  }
  return step;
}

std::vector<SeenTensor> CallHistory::tensors(const Places& places, const Strides& strides) const {
  std::vector<SeenTensor> made;
  for (const uint32_t place : places) {
    const Call& call = calls_[place];
    const Kind& kind = kinds_[call.kind];
    SeenTensor& tensor = made.emplace_back(kind.first);
    Entry& entry = tensor.bucket.entries.front();
    if (const auto name = split_name(entry.name, entry.numbered_at)) {
      entry.name = name->with(call.number);
      entry.stride = strides.at(kind.series);
    }
    tensor.number = call.number;
    tensor.seen = call.seen;
    tensor.started = call.started;
    tensor.ready = call.ready;
  }
  return made;
}

}  // namespace rueda::control
