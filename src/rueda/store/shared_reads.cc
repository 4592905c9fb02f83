#include "rueda/store/shared_reads.h"

#include <algorithm>

namespace rueda::store {
namespace {

constexpr Nanos kLongestShared = 3'600 * kSecond;
constexpr size_t kMaxKnown = 256;  // keys, of which an init needs some ten

}  // namespace

void SharedReads::take(ClientId client, const Command& command, Nanos now, BoardOutput& out) {
  const Nanos wait = std::clamp<Nanos>(command.amount, 0, kLongestShared);
  const Nanos oldest = command.limit >= kAnyAge ? 0 : now - std::max<Nanos>(command.limit, 0);
  const Question question{command.key, wait > 0};
  State& state = states_[question];
  if (state.known && state.known_since >= oldest) {
    out.replies.emplace_back(client, *state.known);
    return;
  }
  state.readers.push_back({.client = client, .oldest = oldest, .until = now + wait});
  if (!state.asking) ask(question, state, now, out);
}

void SharedReads::ask(const Question& question, State& state, Nanos now, BoardOutput& out) {
  const auto& [key, is_wait] = question;
  Nanos until = now;
  for (const Reader& reader : state.readers) until = std::max(until, reader.until);
  state.asking = next_question_;
  state.asking_since = now;
  asked_.emplace(next_question_, question);
  out.questions.emplace_back(next_question_, Command{.op = is_wait ? Op::kGet : Op::kTryGet,
                                                     .key = key,
                                                     .value = "",
                                                     .amount = is_wait ? until - now : 0});
  next_question_ += 2;
}

void SharedReads::answered(QuestionId id, const Reply& reply, Nanos now, BoardOutput& out) {
  const auto asked = asked_.find(id);
  if (asked == asked_.end()) return;
  const Question question = asked->second;
  asked_.erase(asked);
  State& state = states_[question];
  state.asking.reset();
  const bool is_late = question.second && reply.code == Code::kTimeout;
  std::vector<Reader> left;
  for (const Reader& reader : state.readers) {
    const bool is_answer = is_late ? reader.until <= now : reader.oldest <= state.asking_since;
    if (is_answer)
      out.replies.emplace_back(reader.client, reply);
    else
      left.push_back(reader);
  }
  state.readers = std::move(left);
  if (reply.code == Code::kOk || (!question.second && reply.code == Code::kUnavailable)) keep(state, reply);
  if (!state.readers.empty())
    ask(question, state, now, out);
  else if (!state.known)
    states_.erase(question);
  if (known_bytes_ > kMaxKnownBytes || states_.size() > kMaxKnown) forget_known();
}

void SharedReads::keep(State& state, const Reply& reply) {
  if (state.known) known_bytes_ -= state.known->text.size();
  state.known = reply;
  state.known_since = state.asking_since;
  known_bytes_ += reply.text.size();
}

void SharedReads::forget_known() {
  for (auto& [question, state] : states_) state.known.reset();
  std::erase_if(states_, [](const auto& one) { return one.second.readers.empty() && !one.second.asking; });
  known_bytes_ = 0;
}

void SharedReads::forget(ClientId client) {
  for (auto& [question, state] : states_)
    std::erase_if(state.readers, [&](const Reader& reader) { return reader.client == client; });
}

void SharedReads::expire(Nanos now, BoardOutput& out) {
  for (auto& [question, state] : states_) {
    if (!question.second) continue;
    std::erase_if(state.readers, [&](const Reader& reader) {
      if (reader.until > now) return false;
      out.replies.emplace_back(reader.client, Reply{.code = Code::kTimeout, .text = ""});
      return true;
    });
  }
}

std::optional<Nanos> SharedReads::due() const {
  std::optional<Nanos> first;
  for (const auto& [question, state] : states_)
    for (const Reader& reader : state.readers)
      if (question.second) first = std::min(first.value_or(reader.until), reader.until);
  return first;
}

}  // namespace rueda::store
