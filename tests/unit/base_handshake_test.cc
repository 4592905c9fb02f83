#include "rueda/base/handshake.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

namespace rueda::base_handshake_test {
namespace {

constexpr std::string_view kRelease = "0.1.0";

Secret secret_of(char fill) { return Secret{Bytes(32, static_cast<std::byte>(fill))}; }

ConnectionIdentity caller() {
  return {.job = "job-1", .epoch = 3, .kind = ConnectionKind::kData, .channel = 2, .from = 5, .to = 1};
}
ConnectionIdentity callee() {
  return {.job = "job-1", .epoch = 3, .kind = ConnectionKind::kData, .channel = 0, .from = -1, .to = 1};
}

struct Outcomes {
  Status client, server;
  bool both_done = false;
  size_t longest = 0;
};

// Moves messages between the two until neither has more to say; tamper sees each message
// before it is delivered.
using Tamper = std::function<void(int index, Bytes& message)>;
Outcomes converse(Handshake& client, Handshake& server, const Tamper& tamper = {}) {
  Outcomes verdicts;
  for (int index = 0; index < 8; ++index) {
    const bool is_from_client = index % 2 == 0;
    Bytes message = (is_from_client ? client : server).take_output();
    verdicts.longest = std::max(verdicts.longest, message.size());
    if (message.empty()) break;
    if (tamper) tamper(index, message);
    Handshake& receiver = is_from_client ? server : client;
    Result<size_t> taken = receiver.feed(message);
    if (!taken.is_ok()) (is_from_client ? verdicts.server : verdicts.client) = taken.status();
  }
  verdicts.both_done = client.is_done() && server.is_done();
  return verdicts;
}

Outcomes converse(const ConnectionIdentity& mine, const ConnectionIdentity& accepted, char client_key = 'k',
                  char server_key = 'k') {
  Handshake client = Handshake::client(secret_of(client_key), mine, std::string(kRelease));
  Handshake server = Handshake::server(secret_of(server_key), accepted, std::string(kRelease));
  return converse(client, server);
}

void expect_denied(const Status& status, std::string_view part) {
  EXPECT_EQ(status.code, Code::kPermissionDenied) << status.to_string();
  EXPECT_NE(status.why.find(part), std::string::npos) << status.why;
}

TEST(Hmac, agrees_with_rfc4231_case_2) {
  const std::string key = "Jefe", text = "what do ya want for nothing?";
  const auto mac = hmac_sha256(std::as_bytes(std::span(key)), std::as_bytes(std::span(text)));
  EXPECT_EQ(std::to_integer<int>(mac[0]), 0x5b);
  EXPECT_EQ(std::to_integer<int>(mac[1]), 0xdc);
  EXPECT_EQ(std::to_integer<int>(mac[31]), 0x43);
}

TEST(Handshake, same_secret_and_terms_are_accepted_and_the_server_learns_rank_and_channel) {
  Handshake client = Handshake::client(secret_of('k'), caller(), std::string(kRelease));
  Handshake server = Handshake::server(secret_of('k'), callee(), std::string(kRelease));
  const Outcomes verdicts = converse(client, server);
  EXPECT_TRUE(verdicts.both_done) << verdicts.client.why << verdicts.server.why;
  EXPECT_EQ(server.identity().from, 5);
  EXPECT_EQ(server.identity().channel, 2);
  EXPECT_LE(verdicts.longest, kMaxHandshakeBytes);
}

TEST(Handshake, a_rank_of_minus_one_means_any) {
  ConnectionIdentity mine = caller();
  mine.from = mine.to = -1;
  EXPECT_TRUE(converse(mine, callee()).both_done);
  ConnectionIdentity accepted = callee();
  accepted.to = -1;
  EXPECT_TRUE(converse(caller(), accepted).both_done);
}

TEST(Handshake, bytes_one_at_a_time_suffice_and_bytes_behind_it_are_left_alone) {
  Handshake client = Handshake::client(secret_of('k'), caller(), std::string(kRelease));
  Handshake server = Handshake::server(secret_of('k'), callee(), std::string(kRelease));
  for (int round = 0; round < 3; ++round) {
    for (Handshake* from : {&client, &server}) {
      Handshake& to = from == &client ? server : client;
      for (const std::byte b : from->take_output()) {
        const Result<size_t> taken = to.feed(std::span(&b, 1));
        ASSERT_TRUE(taken.is_ok()) << taken.status().why;
        EXPECT_EQ(taken.value(), 1u);
      }
    }
  }
  ASSERT_TRUE(client.is_done() && server.is_done());

  Handshake again = Handshake::client(secret_of('k'), caller(), std::string(kRelease));
  Handshake other = Handshake::server(secret_of('k'), callee(), std::string(kRelease));
  ASSERT_TRUE(other.feed(again.take_output()).is_ok());
  ASSERT_TRUE(again.feed(other.take_output()).is_ok());
  ASSERT_TRUE(other.feed(again.take_output()).is_ok());
  Bytes welcome = other.take_output();
  const size_t size = welcome.size();
  welcome.resize(size + 100, std::byte{0x52});
  EXPECT_EQ(again.feed(welcome).value(), size);
  EXPECT_TRUE(again.is_done());
}

TEST(Handshake, different_releases_name_both_on_both_sides) {
  Handshake client = Handshake::client(secret_of('k'), caller(), "0.1.0");
  Handshake server = Handshake::server(secret_of('k'), callee(), "0.2.0");
  const Outcomes verdicts = converse(client, server);
  expect_denied(verdicts.client, "this side runs rueda 0.1.0 (wire 2), the peer 0.2.0");
  expect_denied(verdicts.server, "this side runs rueda 0.2.0 (wire 2), the peer 0.1.0");
}

TEST(Handshake, different_protocols_are_named_on_both_sides_and_only_to_a_peer_that_has_proved_itself) {
  ConnectionIdentity mine = caller(), accepted = callee();
  mine.protocol = 3;
  accepted.protocol = 2;
  Handshake client = Handshake::client(secret_of('k'), mine, std::string(kRelease));
  Handshake server = Handshake::server(secret_of('k'), accepted, std::string(kRelease));
  const Outcomes verdicts = converse(client, server);
  EXPECT_FALSE(verdicts.both_done);
  expect_denied(verdicts.client, "this side speaks data protocol 3, the peer 2");
  expect_denied(verdicts.server, "this side speaks data protocol 2, the peer 3");
  EXPECT_EQ(client.outcome(), HandshakeOutcome::kWrongProtocol);
  EXPECT_EQ(server.outcome(), HandshakeOutcome::kWrongProtocol);
  EXPECT_EQ(server.identity().from, 5);
  EXPECT_EQ(server.peer().protocol, 3);
  EXPECT_EQ(client.peer().protocol, 2);

  const Outcomes strangers = converse(mine, accepted, 'k', 'x');
  expect_denied(strangers.client, "secret of job 'job-1'");
  expect_denied(strangers.server, "secret of job 'job-1'");
}

// The number is in the proofs: nobody on the way can make two builds that differ believe that they agree.
TEST(Handshake, a_protocol_number_that_is_changed_on_the_way_is_a_wrong_secret) {
  ConnectionIdentity mine = caller(), accepted = callee();
  mine.protocol = 3;
  accepted.protocol = 2;
  Handshake client = Handshake::client(secret_of('k'), mine, std::string(kRelease));
  Handshake server = Handshake::server(secret_of('k'), accepted, std::string(kRelease));
  const Outcomes verdicts = converse(client, server, [](int index, Bytes& message) {
    if (index == 0) message[message.size() - 34] = std::byte{2};
    if (index == 1) message[message.size() - 66] = std::byte{3};
  });
  expect_denied(verdicts.client, "does not know the secret");
  EXPECT_FALSE(verdicts.both_done);
}

// A stranger could say it.
TEST(Handshake, a_refusal_of_the_protocol_without_a_proof_is_not_believed) {
  Handshake client = Handshake::client(secret_of('k'), caller(), std::string(kRelease));
  [[maybe_unused]] const Bytes hello = client.take_output();
  ByteWriter body, message;
  body.put(kWireVersion);
  body.put_string(kRelease);
  body.put(HandshakeOutcome::kWrongProtocol);
  message.put(uint32_t{0x31445552});
  message.put(uint8_t{2});
  message.put(static_cast<uint16_t>(body.bytes().size()));
  message.put_raw(body.bytes());
  expect_denied(client.feed(message.bytes()).status(), "without a proof");
  EXPECT_EQ(client.outcome(), HandshakeOutcome::kAccepted);
}

TEST(Handshake, an_older_wire_version_is_named_whatever_follows_it) {
  ByteWriter body, message;
  body.put(uint16_t{1});
  body.put_string(kRelease);
  body.put_raw(Bytes(70, std::byte{7}));
  message.put(uint32_t{0x31445552});
  message.put(uint8_t{1});
  message.put(static_cast<uint16_t>(body.bytes().size()));
  message.put_raw(body.bytes());
  Handshake server = Handshake::server(secret_of('k'), callee(), std::string(kRelease));
  expect_denied(server.feed(message.bytes()).status(),
                "this side runs rueda 0.1.0 (wire 2), the peer 0.1.0 (wire 1)");
  EXPECT_EQ(server.outcome(), HandshakeOutcome::kWrongVersion);
  EXPECT_FALSE(server.take_output().empty()) << "the older side reads the outcome";
}

TEST(Handshake, the_client_knows_what_it_was_refused_for) {
  const auto refused_by = [](Handshake server) {
    Handshake client = Handshake::client(secret_of('k'), caller(), std::string(kRelease));
    converse(client, server);
    return client.outcome();
  };
  ConnectionIdentity job = callee(), rank = callee();
  job.job = "job-2";
  rank.to = 7;
  EXPECT_EQ(refused_by(Handshake::server(secret_of('k'), callee(), std::string(kRelease))),
            HandshakeOutcome::kAccepted);
  EXPECT_EQ(refused_by(Handshake::server(secret_of('x'), callee(), std::string(kRelease))),
            HandshakeOutcome::kWrongSecret);
  EXPECT_EQ(refused_by(Handshake::server(secret_of('k'), job, std::string(kRelease))),
            HandshakeOutcome::kWrongJob);
  EXPECT_EQ(refused_by(Handshake::server(secret_of('k'), rank, std::string(kRelease))),
            HandshakeOutcome::kWrongRank);
  EXPECT_EQ(refused_by(Handshake::server(secret_of('k'), callee(), "0.0.1")),
            HandshakeOutcome::kWrongVersion);
}

TEST(Handshake, a_wrong_secret_is_named_on_both_sides) {
  const Outcomes verdicts = converse(caller(), callee(), 'k', 'x');
  expect_denied(verdicts.client, "secret of job 'job-1'");
  expect_denied(verdicts.server, "secret of job 'job-1'");
}

TEST(Handshake, each_differing_term_is_named_on_both_sides) {
  ConnectionIdentity accepted = callee();
  accepted.job = "job-2";
  Outcomes verdicts = converse(caller(), accepted);
  expect_denied(verdicts.client, "another job than 'job-1'");
  expect_denied(verdicts.server, "a peer of job 'job-1' called; this is job 'job-2'");
  accepted = callee();
  accepted.epoch = 4;
  verdicts = converse(caller(), accepted);
  expect_denied(verdicts.client, "not in epoch 3");
  expect_denied(verdicts.server, "a peer of epoch 3 called; this is epoch 4");
  accepted = callee();
  accepted.kind = ConnectionKind::kStore;
  verdicts = converse(caller(), accepted);
  expect_denied(verdicts.client, "does not accept data connections");
  expect_denied(verdicts.server, "asked for a data connection; this side accepts store connections");
  accepted = callee();
  accepted.to = 2;
  verdicts = converse(caller(), accepted);
  expect_denied(verdicts.client, "not rank 1");
  expect_denied(verdicts.server, "asked for rank 1; this is rank 2");
  ConnectionIdentity mine = caller();
  mine.from = 1 << 30;
  expect_denied(converse(mine, callee()).server, "impossible rank");
}

TEST(Handshake, every_flipped_bit_of_every_message_is_refused) {
  for (int target = 0; target < 4; ++target) {
    for (size_t at = 0, size = 1; at < size; ++at) {
      Handshake client = Handshake::client(secret_of('k'), caller(), std::string(kRelease));
      Handshake server = Handshake::server(secret_of('k'), callee(), std::string(kRelease));
      const Outcomes verdicts = converse(client, server, [&](int index, Bytes& message) {
        if (index != target) return;
        size = message.size();
        message[at] ^= std::byte{1};
      });
      EXPECT_FALSE(verdicts.both_done) << "message " << target << ", byte " << at;
      // Whoever received the changed bytes must not believe them; a longer size leaves it
      // waiting for the rest.
      const bool is_to_server = target % 2 == 0;
      EXPECT_FALSE((is_to_server ? server : client).is_done()) << "message " << target << ", byte " << at;
    }
  }
}

TEST(Handshake, a_prefix_of_a_message_is_never_enough) {
  for (int target = 0; target < 4; ++target) {
    for (size_t keep = 0, size = 1; keep < size; ++keep) {
      Handshake client = Handshake::client(secret_of('k'), caller(), std::string(kRelease));
      Handshake server = Handshake::server(secret_of('k'), callee(), std::string(kRelease));
      const Outcomes verdicts = converse(client, server, [&](int index, Bytes& message) {
        if (index != target) return;
        size = message.size();
        message.resize(keep);
      });
      EXPECT_FALSE(verdicts.both_done);
      EXPECT_TRUE(verdicts.client.is_ok() && verdicts.server.is_ok()) << "a prefix is no fault yet";
    }
  }
}

TEST(Handshake, a_recorded_client_cannot_be_replayed) {
  Handshake client = Handshake::client(secret_of('k'), caller(), std::string(kRelease));
  Handshake server = Handshake::server(secret_of('k'), callee(), std::string(kRelease));
  Bytes hello, proof;
  const Outcomes verdicts = converse(client, server, [&](int index, Bytes& message) {
    if (index == 0) hello = message;
    if (index == 2) proof = message;
  });
  ASSERT_TRUE(verdicts.both_done);
  Handshake victim = Handshake::server(secret_of('k'), callee(), std::string(kRelease));
  ASSERT_TRUE(victim.feed(hello).is_ok());
  const Result<size_t> replayed = victim.feed(proof);
  ASSERT_FALSE(replayed.is_ok());
  expect_denied(replayed.status(), "secret");
}

TEST(Handshake, a_recorded_server_cannot_be_replayed) {
  Handshake client = Handshake::client(secret_of('k'), caller(), std::string(kRelease));
  Handshake server = Handshake::server(secret_of('k'), callee(), std::string(kRelease));
  Bytes answer;
  ASSERT_TRUE(converse(client, server, [&](int index, Bytes& message) {
                if (index == 1) answer = message;
              }).both_done);
  Handshake victim = Handshake::client(secret_of('k'), caller(), std::string(kRelease));
  const Result<size_t> replayed = victim.feed(answer);
  ASSERT_FALSE(replayed.is_ok());
  expect_denied(replayed.status(), "secret");
}

TEST(Handshake, a_reflected_message_is_refused) {
  Handshake client = Handshake::client(secret_of('k'), caller(), std::string(kRelease));
  const Bytes hello = client.take_output();
  EXPECT_FALSE(client.feed(hello).is_ok());

  // The classic: the attacker opens a second session to the same server and lets it answer its own challenge.
  Handshake server = Handshake::server(secret_of('k'), callee(), std::string(kRelease));
  Handshake twin = Handshake::server(secret_of('k'), callee(), std::string(kRelease));
  ASSERT_TRUE(server.feed(hello).is_ok());
  ASSERT_TRUE(twin.feed(hello).is_ok());
  const Bytes twin_answer = twin.take_output();
  Bytes forged = Handshake::client(secret_of('z'), caller(), std::string(kRelease)).take_output();
  forged.resize(7 + 1 + 32);  // a proof: header, outcome, the twin's HMAC in place of the client's
  forged[4] = std::byte{3};
  forged[5] = std::byte{33};
  forged[6] = forged[7] = std::byte{0};
  std::copy(twin_answer.end() - 32, twin_answer.end(), forged.begin() + 8);
  const Result<size_t> outcome = server.feed(forged);
  ASSERT_FALSE(outcome.is_ok());
  expect_denied(outcome.status(), "secret");
}

TEST(Handshake, random_bytes_are_refused_at_once_and_nothing_is_hoarded) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    Bytes garbage(1 + random() % 2000);
    for (std::byte& b : garbage) b = static_cast<std::byte>(random());
    // Half of the rounds get past the magic, the kind and the size.
    Handshake side = round % 2 == 0 ? Handshake::server(secret_of('k'), callee(), std::string(kRelease))
                                    : Handshake::client(secret_of('k'), caller(), std::string(kRelease));
    if (round % 4 >= 2 && garbage.size() > 8) {
      constexpr std::array<int, 6> kStart = {'R', 'U', 'D', '1', 0, 0};
      for (size_t i = 0; i < 4; ++i) garbage[i] = static_cast<std::byte>(kStart[i]);
      garbage[4] = static_cast<std::byte>(round % 2 + 1);
      garbage[6] = static_cast<std::byte>(random() % 3);
    }
    const Result<size_t> taken = side.feed(garbage);
    EXPECT_FALSE(side.is_done());
    if (taken.is_ok()) {
      EXPECT_LE(taken.value(), kMaxHandshakeBytes);
    } else {
      EXPECT_FALSE(side.feed({}).is_ok()) << "a failure is final";
    }
  }
}

TEST(Handshake, a_foreign_first_byte_fails_without_waiting_for_more) {
  Handshake server = Handshake::server(secret_of('k'), callee(), std::string(kRelease));
  const std::byte g{'G'};  // "GET / HTTP/1.1"
  EXPECT_FALSE(server.feed(std::span(&g, 1)).is_ok());
}

}  // namespace
}  // namespace rueda::base_handshake_test
