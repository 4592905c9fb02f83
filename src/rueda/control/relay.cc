#include "rueda/control/relay.h"

#include <algorithm>
#include <utility>

#include "rueda/control/message_types.h"

namespace rueda::control {
namespace {

// More requests than a model has tensors; with their splits they fit into a message.
constexpr size_t kMostTogether = 4'096;

std::string topic_of(int32_t process_set, const std::string& name) {
  return std::to_string(process_set) + ":" + name;
}

// Ranks use GPUs of different numbers; only whether it is one counts.
bool are_alike(const Request& one, const Request& other) {
  const auto* a = std::get_if<TensorRequest>(&one);
  const auto* b = std::get_if<TensorRequest>(&other);
  if (a == nullptr || b == nullptr) return one == other;
  if (a->device == b->device || a->device < 0 || b->device < 0) return *a == *b;
  TensorRequest moved = *a;
  moved.device = b->device;
  return moved == *b;
}

template <class T>
bool are_alike(const T& one, const T& other) {
  return one == other;
}

bool are_alike(const std::vector<Request>& one, const std::vector<Request>& other) {
  return std::ranges::equal(one, other, [](const Request& a, const Request& b) { return are_alike(a, b); });
}

bool are_alike(const std::variant<std::vector<Request>, Bytes>& one,
               const std::variant<std::vector<Request>, Bytes>& other) {
  if (one.index() != other.index()) return false;
  if (const auto* unit = std::get_if<std::vector<Request>>(&one))
    return are_alike(*unit, std::get<std::vector<Request>>(other));
  return std::get<Bytes>(one) == std::get<Bytes>(other);
}

bool is_of_group(const Request& request, const Request& first) {
  const auto* one = std::get_if<TensorRequest>(&request);
  const auto* head = std::get_if<TensorRequest>(&first);
  return one != nullptr && head != nullptr && one->group_size > 1 && head->group_size > 1 &&
         one->group_index > head->group_index && one->group_name == head->group_name &&
         one->process_set == head->process_set;
}

}  // namespace

Relay::Relay(Options options) : options_(std::move(options)) {
  expected_[0] = options_.below;
  for (const auto& [id, ranks] : options_.sets) expected_[id] = RankSet(ranks).common(options_.below);
}

const RankSet* Relay::expected_of(int32_t process_set) const {
  const auto found = expected_.find(process_set);
  return found == expected_.end() ? nullptr : &found->second;
}

bool Relay::are_all(const RankSet& said, const RankSet& expected) const {
  if (said.includes(expected)) return true;
  if (joined_.is_empty()) return false;
  RankSet missing = expected;
  missing.remove(said);
  return joined_.includes(missing);
}

Status Relay::take(Rank child, Statement statement, Nanos now) {
  if (statement.type == MessageType::kRequests) return take_requests(child, statement, now);
  if (statement.type == MessageType::kFacts) {
    collect_facts(std::move(statement), now);
    return Status::ok();
  }
  if (statement.type == MessageType::kPlanPosition || statement.type == MessageType::kDone) {
    const std::string topic = statement.type == MessageType::kDone ? "done" : "position";
    collect(child, topic, options_.below,
            {.topic = nullptr,
             .from = std::move(statement.from),
             .type = statement.type,
             .content = std::move(statement.payload),
             .since = now});
    return Status::ok();
  }
  pass_at_once(
      child,
      {.from = std::move(statement.from), .type = statement.type, .content = std::move(statement.payload)});
  return Status::ok();
}

Status Relay::take_requests(Rank child, const Statement& statement, Nanos now) {
  Result<Submitted> submitted = decode_submitted(statement.payload);
  if (!submitted.is_ok()) return submitted.status();
  // A plan has begun meanwhile, so these requests are void: their ranks put them into the plan, or send them
  // again.
  if (submitted.value().plans_begun != plans_begun_) return Status::ok();
  std::vector<Request>& all = submitted.value().requests;
  for (size_t first = 0; first < all.size();) {
    size_t next = first + 1;
    while (next < all.size() && is_of_group(all[next], all[first])) ++next;
    take_unit(child, statement.from,
              {std::make_move_iterator(all.begin() + static_cast<std::ptrdiff_t>(first)),
               std::make_move_iterator(all.begin() + static_cast<std::ptrdiff_t>(next))},
              now);
    first = next;
  }
  return Status::ok();
}

void Relay::take_unit(Rank child, const RankSet& from, std::vector<Request> unit, Nanos now) {
  const auto& [process_set, name] = name_of(unit.front());
  const auto* tensor = std::get_if<TensorRequest>(&unit.front());
  const bool is_join = tensor != nullptr && tensor->what == Collective::kJoin;
  const RankSet* const expected = expected_of(process_set);
  const bool is_usual =
      expected != nullptr && !is_join && expected->includes(from) && joined_.common(from).is_empty();
  if (is_usual) {
    const std::string topic = topic_of(process_set, name);
    return collect(child, topic, *expected,
                   {.topic = nullptr,
                    .from = from,
                    .type = MessageType::kRequests,
                    .content = std::move(unit),
                    .since = now});
  }
  if (is_join && process_set == 0) {  // from now on nothing waits for these ranks
    send_all();
    joined_.add(from);
  }
  pass_at_once(child, {.from = from, .type = MessageType::kRequests, .content = std::move(unit)});
}

void Relay::collect(Rank child, const std::string& topic, const RankSet& expected, Item item) {
  Topics::value_type& about = *topics_.try_emplace(topic).first;
  // The same rank says it again: what it said before is settled, or is a mistake that the coordinator judges.
  if (!about.second.said.common(item.from).is_empty()) {
    if (!about.second.heads.empty()) send_all();
    about.second.said = {};
  }
  item.topic = &about;
  about.second.is_request = item.type == MessageType::kRequests;
  about.second.said.add(item.from);
  about.second.heads.push_back(child);
  queues_[child].push_back(std::move(item));
  if (!are_all(about.second.said, expected)) return;
  // A child may have it more than once, for some of its ranks each time.
  while (!about.second.heads.empty()) {
    // A copy: what comes before leaves, which changes only other topics.
    for (const Rank each : std::vector<Rank>(about.second.heads))
      while (queues_[each].front().topic != &about) send_heads(*queues_[each].front().topic);
    send_heads(about);
  }
  topics_.erase(topic);
}

void Relay::pass_at_once(Rank child, Message message) {
  std::deque<Item>& queue = queues_[child];
  while (!queue.empty()) send_heads(*queue.front().topic);
  out_.push_back(std::move(message));
}

// They say how ranks are, in no order with the rest. All ranks are asked at about the same time.
void Relay::collect_facts(Statement statement, Nanos now) {
  if (facts_.empty()) facts_since_ = now;
  facts_of_.add(statement.from);
  facts_.push_back(std::move(statement));
}

void Relay::send_heads(Topics::value_type& topic) {
  const size_t first = out_.size();
  std::erase_if(topic.second.heads, [&](Rank child) {
    std::deque<Item>& queue = queues_[child];
    if (queue.empty() || queue.front().topic != &topic) return false;
    Item item = std::move(queue.front());
    queue.pop_front();
    const auto alike = std::find_if(out_.begin() + static_cast<std::ptrdiff_t>(first), out_.end(),
                                    [&](const Message& one) { return are_alike(one.content, item.content); });
    if (alike != out_.end())
      alike->from.add(item.from);
    else
      out_.push_back({.from = std::move(item.from), .type = item.type, .content = std::move(item.content)});
    return true;
  });
}

void Relay::send_all() {
  for (auto& [child, queue] : queues_)
    while (!queue.empty()) send_heads(*queue.front().topic);
}

void Relay::answered(int32_t process_set, const std::string& name) {
  const auto found = topics_.find(topic_of(process_set, name));
  if (found != topics_.end() && found->second.heads.empty()) topics_.erase(found);
}

void Relay::drop_requests() {
  const auto is_request = [](const auto& one) { return one.topic->second.is_request; };
  for (auto& [child, queue] : queues_) std::erase_if(queue, is_request);
  std::erase_if(topics_, [](const auto& one) { return one.second.is_request; });
  std::erase_if(out_, [](const Message& one) { return one.type == MessageType::kRequests; });
}

void Relay::saw(std::span<const Response> responses) {
  for (const Response& response : responses) {
    if (const auto* bucket = std::get_if<Bucket>(&response)) {
      for (const Entry& entry : bucket->entries) answered(bucket->process_set, entry.name);
    } else if (const auto* failure = std::get_if<Failure>(&response)) {
      for (const FailedName& one : failure->failed) answered(failure->process_set, one.name);
    } else if (const auto* added = std::get_if<SetAdded>(&response)) {
      for (const std::string& name : added->names) answered(0, name);
      expected_[added->id] = RankSet(added->ranks).common(options_.below);
    } else if (const auto* removed = std::get_if<SetRemoved>(&response)) {
      for (const std::string& name : removed->names) answered(0, name);
      expected_.erase(removed->id);
    } else if (std::holds_alternative<Joined>(response)) {
      joined_ = {};
    } else if (std::holds_alternative<PlanBegin>(response)) {
      ++plans_begun_;
      drop_requests();
    }
  }
}

std::vector<Statement> Relay::due(Nanos now) {
  for (auto& [child, queue] : queues_)
    while (!queue.empty() && queue.front().since + options_.patience <= now) send_heads(*queue.front().topic);
  std::vector<Statement> statements;
  for (size_t first = 0; first < out_.size();) {
    Message& message = out_[first++];
    if (auto* payload = std::get_if<Bytes>(&message.content)) {
      statements.push_back(
          {.from = std::move(message.from), .type = message.type, .payload = std::move(*payload)});
      continue;
    }
    auto& together = std::get<std::vector<Request>>(message.content);
    for (; first < out_.size() && out_[first].type == MessageType::kRequests &&
           out_[first].from == message.from && together.size() < kMostTogether;
         ++first)
      std::ranges::move(std::get<std::vector<Request>>(out_[first].content), std::back_inserter(together));
    statements.push_back({.from = std::move(message.from),
                          .type = MessageType::kRequests,
                          .payload = encode(plans_begun_, together)});
  }
  out_.clear();
  const bool are_facts_due = facts_of_.includes(options_.below) || facts_since_ + options_.patience <= now;
  if (!facts_.empty() && are_facts_due) {
    std::ranges::move(std::exchange(facts_, {}), std::back_inserter(statements));
    facts_of_ = {};
  }
  return statements;
}

Nanos Relay::next_event() const {
  Nanos next = kLongestTime;
  for (const auto& [child, queue] : queues_)
    if (!queue.empty()) next = std::min(next, queue.front().since + options_.patience);
  if (!facts_.empty()) next = std::min(next, facts_since_ + options_.patience);
  return next;
}

}  // namespace rueda::control
