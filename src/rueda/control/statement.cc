#include "rueda/control/statement.h"

#include "rueda/base/limits.h"

namespace rueda::control {

bool rises(MessageType type) {
  switch (type) {
    case MessageType::kRequests:
    case MessageType::kAbort:
    case MessageType::kShutdown:
    case MessageType::kDone:
    case MessageType::kPlanDepart:
    case MessageType::kPlanPosition:
    case MessageType::kFacts:
    case MessageType::kProbe:
      return true;
    default:
      return false;
  }
}

Bytes encode(std::span<const Statement> statements) {
  ByteWriter writer;
  writer.put_list(statements, [](ByteWriter& to, const Statement& statement) {
    put_ranks(to, statement.from);
    to.put(statement.type);
    to.put_vector(statement.payload);
  });
  return std::move(writer).take();
}

Result<std::vector<Statement>> decode_statements(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  std::vector<Statement> statements = reader.get_list([](ByteReader& from) {
    Statement statement{.from = get_ranks(from), .type = from.get<MessageType>(), .payload = {}};
    if (!rises(statement.type)) from.fail();
    statement.payload = from.get_vector<std::byte>(kMaxMessageBytes);
    return statement;
  });
  if (!is_whole(reader)) return malformed("statements");
  return statements;
}

}  // namespace rueda::control
