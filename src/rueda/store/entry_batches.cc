#include "rueda/store/entry_batches.h"

#include <algorithm>
#include <utility>

namespace rueda::store {
namespace {

constexpr int kMostTries = 8;       // a rival writes a key a few times in all
constexpr size_t kMostTables = 16;  // of which two are in use: who has come, and the peer info of an init

}  // namespace

Nanos EntryBatches::Table::due() const {
  const Rank missing = host_size - static_cast<Rank>(waiting.size() + written.size());
  const Nanos quiet = host_size == 0 || missing <= 1 ? kFewMissing : kManyMissing;
  return std::min(first + kMostPatience, last + quiet);
}

EntryBatches::Table& EntryBatches::table_of(const std::string& name) {
  if (tables_.size() >= kMostTables && !tables_.contains(name))
    std::erase_if(tables_, [](const auto& one) { return one.second.waiting.empty(); });
  return tables_[name];
}

void EntryBatches::take(ClientId client, const Command& command, Nanos now, BoardOutput& out) {
  const auto rank = static_cast<Rank>(command.amount);
  const bool is_rank = command.amount >= 0 && command.amount < kMaxRanks;
  if (!is_rank || command.limit < 0 || command.limit > kMaxRanks) {
    out.replies.emplace_back(client,
                             Reply{.code = Code::kInvalidArgument, .text = "no rank has this number"});
    return;
  }
  Table& table = table_of(command.key);
  if (table.waiting.empty()) table.first = now;
  table.last = now;
  table.waiting[rank] = command.value;
  table.host_size = static_cast<Rank>(command.limit);
  if (command.op == Op::kAnnounce)
    out.replies.emplace_back(client, Reply{});
  else
    table.givers[rank] = client;
  if (table.is_complete()) write_waiting(command.key, table, out);
}

// A rank that was written before is another process now, and its entry is replaced where it stands.
void EntryBatches::write_waiting(const std::string& name, Table& table, BoardOutput& out) {
  Entries fresh = std::exchange(table.waiting, {});
  Givers givers = std::exchange(table.givers, {});
  for (const auto& [rank, lowest] : table.written) {
    if (!fresh.contains(rank)) continue;
    Batch again{.table = name, .lowest = lowest};
    again.mine.insert(fresh.extract(rank));
    if (givers.contains(rank)) again.givers.insert(givers.extract(rank));
    look(std::move(again), out);
  }
  write_new(name, std::move(fresh), std::move(givers), out);
}

void EntryBatches::write_new(const std::string& name, Entries entries, Givers givers, BoardOutput& out) {
  const auto table = tables_.find(name);
  while (!entries.empty()) {
    Batch batch{.table = name, .lowest = entries.begin()->first};
    for (size_t count = entries_of_batch(entries); count > 0; --count) {
      const Rank rank = entries.begin()->first;
      if (table != tables_.end()) table->second.written[rank] = batch.lowest;
      if (givers.contains(rank)) batch.givers.insert(givers.extract(rank));
      batch.mine.insert(entries.extract(rank));
    }
    batch.sent = encode_entries(batch.mine);
    write(std::move(batch), "", out);
  }
}

void EntryBatches::write(Batch batch, const std::string& expected, BoardOutput& out) {
  Command command{.op = Op::kCompareAndSet,
                  .key = entries_key(batch.table, batch.lowest),
                  .value = batch.sent,
                  .expected = expected};
  ask(std::move(batch), std::move(command), out);
}

void EntryBatches::look(Batch batch, BoardOutput& out) {
  Command command{.op = Op::kTryGet, .key = entries_key(batch.table, batch.lowest), .value = ""};
  ask(std::move(batch), std::move(command), out);
}

void EntryBatches::ask(Batch batch, Command command, BoardOutput& out) {
  asked_.emplace(next_question_, std::move(batch));
  out.questions.emplace_back(next_question_, std::move(command));
  next_question_ += 2;
}

void EntryBatches::answered(QuestionId question, const Reply& reply, BoardOutput& out) {
  const auto asked = asked_.find(question);
  if (asked == asked_.end()) return;
  Batch batch = std::move(asked->second);
  asked_.erase(asked);
  const bool has_looked = batch.sent.empty();
  if (has_looked && reply.code == Code::kUnavailable)
    write_new(batch.table, std::move(batch.mine), std::move(batch.givers), out);  // the key was removed
  else if (reply.code != Code::kOk || (!has_looked && reply.text == batch.sent))
    finish(batch, reply, out);
  else
    meet_rival(std::move(batch), reply.text, out);
}

void EntryBatches::meet_rival(Batch batch, const std::string& there, BoardOutput& out) {
  Result<BatchMerge> merge = merge_batch(there, batch.lowest, batch.mine);
  if (merge.is_ok() && ++batch.tries > kMostTries)
    merge = Status(Code::kUnavailable, "other processes keep writing the entries of these ranks");
  if (!merge.is_ok()) return finish(batch, {.code = merge.status().code, .text = merge.status().why}, out);
  Givers elsewhere;
  for (const auto& [rank, value] : merge.value().elsewhere) {
    batch.mine.erase(rank);
    if (batch.givers.contains(rank)) elsewhere.insert(batch.givers.extract(rank));
  }
  write_new(batch.table, std::move(merge.value().elsewhere), std::move(elsewhere), out);
  if (!merge.value().is_different) return finish(batch, Reply{}, out);
  batch.sent = encode_entries(merge.value().there);
  write(std::move(batch), there, out);
}

void EntryBatches::finish(const Batch& batch, const Reply& reply, BoardOutput& out) {
  const bool is_ok = reply.code == Code::kOk;
  const auto table = tables_.find(batch.table);
  for (const auto& [rank, value] : batch.mine)
    if (!is_ok && table != tables_.end()) table->second.written.erase(rank);
  for (const auto& [rank, client] : batch.givers)
    out.replies.emplace_back(client, Reply{.code = reply.code, .text = is_ok ? "" : reply.text});
}

// What a rank has given that went before it was written is not told: it does not take part.
void EntryBatches::forget(ClientId client) {
  const auto drop = [client](Givers& givers, Entries* waiting) {
    std::erase_if(givers, [&](const auto& one) {
      if (one.second == client && waiting != nullptr) waiting->erase(one.first);
      return one.second == client;
    });
  };
  for (auto& [name, table] : tables_) drop(table.givers, &table.waiting);
  for (auto& [question, batch] : asked_) drop(batch.givers, nullptr);
}

void EntryBatches::expire(Nanos now, BoardOutput& out) {
  for (auto& [name, table] : tables_)
    if (!table.waiting.empty() && table.due() <= now) write_waiting(name, table, out);
}

std::optional<Nanos> EntryBatches::due() const {
  std::optional<Nanos> first;
  for (const auto& [name, table] : tables_)
    if (!table.waiting.empty()) first = std::min(first.value_or(table.due()), table.due());
  return first;
}

}  // namespace rueda::store
