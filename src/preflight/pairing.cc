#include "preflight/pairing.h"

#include <algorithm>
#include <bit>

namespace rueda::preflight {

std::vector<Round> tournament(int hosts) {
  std::vector<Round> rounds;
  if (hosts < 2) return rounds;
  // Seat 0 stays, the others move on by one place each round. An odd number of hosts gets an empty seat.
  const int seats = hosts + hosts % 2;
  const auto seated = [&](int seat, int round) {
    return seat == 0 ? 0 : 1 + (seat - 1 + round) % (seats - 1);
  };
  for (int round = 0; round < seats - 1; ++round) {
    Round pairs;
    for (int seat = 0; seat < seats / 2; ++seat) {
      const auto [low, high] = std::minmax({seated(seat, round), seated(seats - 1 - seat, round)});
      if (high < hosts) pairs.emplace_back(low, high);
    }
    rounds.push_back(std::move(pairs));
  }
  return rounds;
}

int default_rounds(int hosts) {
  if (hosts < 2) return 0;
  if (hosts <= kAllPairs) return hosts - 1 + hosts % 2;
  return 2 * static_cast<int>(std::bit_width(static_cast<unsigned>(hosts - 1)));
}

std::vector<Round> sample(const std::vector<Round>& rounds, int wanted) {
  const auto known = static_cast<int>(rounds.size());
  if (wanted >= known) return rounds;
  std::vector<Round> chosen;
  for (int i = 0; i < wanted; ++i)
    chosen.push_back(rounds[static_cast<size_t>(static_cast<int64_t>(i) * known / wanted)]);
  return chosen;
}

std::vector<Round> pack(const std::vector<Pair>& pairs, int most) {
  std::vector<Round> rounds;
  for (const Pair& pair : pairs) {
    const auto has_room = [&](const Round& round) {
      return partner_in(round, pair.first) < 0 && partner_in(round, pair.second) < 0;
    };
    auto round = std::ranges::find_if(rounds, has_room);
    if (round == rounds.end()) {
      if (std::ssize(rounds) >= most) continue;
      round = rounds.emplace(rounds.end());
    }
    round->push_back(pair);
  }
  return rounds;
}

int partner_in(const Round& round, int host) {
  for (const auto& [low, high] : round)
    if (low == host || high == host) return low == host ? high : low;
  return -1;
}

}  // namespace rueda::preflight
