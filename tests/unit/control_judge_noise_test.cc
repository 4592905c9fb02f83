// A recording of clean worlds on an overloaded machine, played back: the judge blames nobody of that noise,
// and finds in it whoever falls silent or lets others wait. Nothing here measures time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <sstream>

#include "control_judge_noise.h"
#include "rueda/control/judge.h"

namespace rueda::control::judge_noise_test {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr Nanos kBegin = 100 * kSecond, kLimit = 3 * kSecond;
constexpr unsigned kRank1 = 2;  // as a bit

struct Event {
  Nanos now = 0;
  std::optional<Rank> of;  // whose facts; none: the judge looks
  Facts facts;
  bool is_heard = false;  // rank 1, since the judge looked before
};
using World = std::vector<Event>;

Event read(const std::string& text) {
  std::istringstream in(text);
  char kind = 0;
  Event event;
  in >> kind >> event.now;
  event.now = kBegin + event.now * kMillisecond;
  if (kind == 't') {
    unsigned heard = 0;
    in >> heard;
    event.is_heard = (heard & kRank1) != 0;
  } else {
    Facts& facts = event.facts;
    in >> event.of.emplace() >> facts.use.at >> facts.use.cpu >> facts.is_blocked >> facts.input_for >>
        facts.plan_number >> facts.plan_started >> facts.plan_stuck_for;
    for (Nanos* const one : {&facts.use.at, &facts.use.cpu, &facts.input_for, &facts.plan_stuck_for})
      *one *= kMillisecond;
    facts.use.at += kBegin;
    facts.plan_lacks = "allreduce.g";
  }
  EXPECT_FALSE(in.fail()) << text;
  return event;
}

std::vector<World> recorded() {
  std::vector<World> worlds(1);
  std::string text;
  for (const char one : kRecordedNoise) {
    if (one != ';' && one != '.') {
      text += one;
      continue;
    }
    worlds.back().push_back(read(text));
    text.clear();
    if (one == '.') worlds.emplace_back();
  }
  worlds.pop_back();
  return worlds;
}

class Player {
 public:
  explicit Player(Nanos limit = kLimit) : judge_({.me = 0, .ranks = 2, .limit = limit}, kBegin) {}

  std::vector<Verdict> play(const World& world) {
    std::vector<Verdict> said;
    for (const Event& event : world) {
      if (event.is_heard) judge_.heard(1, event.now);
      if (event.of)
        judge_.on_facts(*event.of, event.facts, event.now);
      else
        for (Verdict& verdict : judge_.tick({}, event.now)) said.push_back(std::move(verdict));
    }
    return said;
  }

 private:
  Judge judge_;
};

// The world up to its middle, and then what changed of its last events makes, once a second for so long.
World with_end(const World& world, Nanos duration, const std::function<void(Event&, Nanos)>& change) {
  World made(world.begin(), world.begin() + static_cast<std::ptrdiff_t>(world.size() / 2));
  const World last(made.end() - 6, made.end());
  const Nanos middle = made.back().now;
  for (Nanos passed = kSecond; passed <= duration; passed += kSecond)
    for (Event event : last) {
      event.now = middle + passed;
      event.facts.use.at = event.now;
      change(event, passed);
      made.push_back(event);
    }
  return made;
}

TEST(JudgeNoise, of_clean_worlds_blames_nobody) {
  const std::vector<World> worlds = recorded();
  ASSERT_THAT(worlds, SizeIs(24));
  for (const World& world : worlds) EXPECT_THAT(Player().play(world), IsEmpty());
}

TEST(JudgeNoise, does_not_hide_a_rank_that_falls_silent) {
  for (const World& world : recorded()) {
    const World silent = with_end(world, 8 * kSecond, [](Event& event, Nanos) {
      event.is_heard = false;
      event.of = event.of == 1 ? 0 : event.of;
    });
    const auto said = Player().play(silent);
    ASSERT_THAT(said, SizeIs(1));
    EXPECT_EQ(said[0].fault, Fault::kSilent);
    EXPECT_EQ(said[0].rank, 1);
    EXPECT_LE(said[0].age, kLimit + 2 * kSecond);
  }
}

TEST(JudgeNoise, does_not_hide_a_rank_that_stops_to_submit) {
  for (const World& world : recorded()) {
    const World late = with_end(world, 12 * kSecond, [](Event& event, Nanos passed) {
      event.is_heard = true;
      if (!event.of) return;
      event.facts.plan_number = 1;
      event.facts.plan_started = *event.of == 0 ? 1000 : 999;
      event.facts.plan_stuck_for = *event.of == 0 ? passed : 0;
      event.facts.is_blocked = *event.of == 0;
      event.facts.use.cpu += *event.of == 0 ? 0 : passed;  // it computes
    });
    const auto said = Player().play(late);
    ASSERT_THAT(said, SizeIs(1));
    EXPECT_EQ(said[0].fault, Fault::kLateInCompute);
    EXPECT_EQ(said[0].rank, 1);
  }
}

}  // namespace
}  // namespace rueda::control::judge_noise_test
