#include "launch/boards.h"

#include <fmt/format.h>

#include <algorithm>

namespace rueda::launch {

Result<Variables> Boards::make(int32_t number, const std::string& folder) {
  const std::string path = fmt::format("{}/board.{}", folder, number);
  Result<status::ElasticBoard> made = status::ElasticBoard::make(path);
  if (!made.is_ok()) return made.status();
  boards_.emplace(number, Board{std::move(made).value()});
  return Variables{{status::kBoardVariable, path}};
}

std::optional<BoardReport> Boards::write(const ViewChangeFor& change) {
  const auto found = boards_.find(change.rank);
  if (found == boards_.end()) return std::nullopt;
  Board& one = found->second;
  one.board.write(change.change);
  one.unanswered.reset();
  if (change.change.phase == status::ViewChange::Phase::kProposed) one.unanswered = change.change;
  one.reached = 0;
  if (change.change.phase != status::ViewChange::Phase::kAsked) return std::nullopt;
  return BoardReport{.rank = change.rank, .round = change.change.round, .commit = one.board.commit()};
}

std::vector<BoardReport> Boards::answers(Nanos now) {
  std::vector<BoardReport> answers;
  for (auto& [number, one] : boards_) {
    if (!one.unanswered) continue;
    int answer = one.board.answer(one.unanswered->round);
    const bool is_there = one.board.commit() >= one.unanswered->commit;
    if (is_there && one.reached == 0) one.reached = now;
    if (answer == 0 && is_there && now - one.reached >= kAnswerTime) answer = -1;
    if (answer == 0) continue;
    answers.push_back({.rank = number,
                       .round = one.unanswered->round,
                       .commit = one.board.commit(),
                       .answer = static_cast<int8_t>(answer)});
    one.unanswered.reset();
  }
  return answers;
}

std::vector<int32_t> Boards::leaving() {
  std::vector<int32_t> numbers;
  for (auto& [number, one] : boards_)
    if (!one.is_leaving && one.board.wants_to_leave()) {
      one.is_leaving = true;
      numbers.push_back(number);
    }
  return numbers;
}

bool Boards::are_awaited() const {
  return std::ranges::any_of(boards_, [](const auto& one) { return one.second.unanswered.has_value(); });
}

}  // namespace rueda::launch
