#include "rueda/store/other_build.h"

namespace rueda::store {
namespace {

// The number of the store's commands is known only of a peer that begins the handshake in the same way.
std::string words_of(const SpokenVersion& one, bool is_same_wire) {
  const int number = is_same_wire ? one.protocol : one.wire;
  return "rueda " + one.release + (is_same_wire ? " with store protocol " : " with wire version ") +
         std::to_string(number);
}

}  // namespace

std::string other_build(const BuildOf& client, const BuildOf& server, std::string_view what_to_do) {
  const bool is_same_wire =
      client.speaks.wire == server.speaks.wire && client.speaks.release == server.speaks.release;
  return std::string(client.who) + " runs " + words_of(client.speaks, is_same_wire) + ", but " +
         std::string(server.who) + " is of " + words_of(server.speaks, is_same_wire) + "; " +
         std::string(what_to_do);
}

}  // namespace rueda::store
