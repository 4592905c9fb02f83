// Ranks as threads of one process meet by URL, by directory and by seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <thread>

#include "../soon.h"
#include "rueda/store/address.h"
#include "rueda/store/file_run.h"
#include "rueda/store/job_id.h"
#include "rueda/store/socket.h"
#include "rueda/store/user_key.h"
#include "rueda/store/world.h"

namespace rueda::store::rendezvous_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Method = World::Method;

Deadline short_wait() { return Deadline::after(100 * kMillisecond); }

class StoreRendezvous : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "rueda-meet-XXXXXX";
    root_ = mkdtemp(pattern.data());
    setenv("XDG_CONFIG_HOME", (root_ + "/config").c_str(), 1);
    job_ = "job" + root_.substr(root_.rfind('-'));  // seed ports of its own, whatever else runs here
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  World world(Rank rank, Rank size, Method method) const {
    World result;
    result.rank = rank;
    result.size = size;
    result.local_rank = result.local_size = -1;
    result.job = job_;
    result.method = method;
    result.seed_host = "127.0.0.1";
    return result;
  }
  World at_url(Rank rank, Rank size, const std::string& url) const {
    World result = world(rank, size, Method::kUrl);
    result.url = url;
    return result;
  }

  // All ranks of a world of three meet and read one another's keys; rank 0 ends last.
  void expect_rendezvous(const World& pattern) const {
    std::vector<std::jthread> ranks;
    std::vector<Rendezvous> met(static_cast<size_t>(pattern.size));
    for (Rank rank = 0; rank < pattern.size; ++rank)
      ranks.emplace_back([&, rank] {
        World mine = pattern;
        mine.rank = rank;
        Result<Rendezvous> opened = open_rendezvous(mine, "", "1.0", soon());
        ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
        Store& store = *opened.value().store;
        EXPECT_TRUE(store.set(std::to_string(rank), "here", soon()).is_ok());
        for (Rank peer = 0; peer < mine.size; ++peer)
          EXPECT_EQ(store.get(std::to_string(peer), soon()).value(), "here");
        met[static_cast<size_t>(rank)] = std::move(opened).value();
      });
    ranks.clear();
    for (const Rendezvous& rendezvous : met) EXPECT_EQ(rendezvous.secret.key, met[0].secret.key);
  }

  // A free port below those the kernel gives to connections, which could take it before it is served.
  static int free_port() {
    const int start = static_cast<int>(getpid()) % 10'000;
    for (int i = 0; i < 10'000; ++i) {
      const int port = 20'000 + (start + i) % 10'000;
      if (listen_on("127.0.0.1", port).is_ok()) return port;
    }
    ADD_FAILURE() << "no port of 127.0.0.1 from 20000 to 29999 is free";
    return 0;
  }

  // What serve(port) gives at the first seed port of the job; another job where a connection has that port.
  template <class Serve>
  auto at_first_seed_port(const Serve& serve) {
    auto served = serve(seed_ports(job_)[0]);
    for (int i = 0; i < 20 && !served.is_ok(); ++i) {
      job_ += "x";
      served = serve(seed_ports(job_)[0]);
    }
    return std::move(served).value();
  }

  std::string root_, job_;
};

TEST_F(StoreRendezvous, a_single_process_job_has_a_secret_and_no_store) {
  const auto met = open_rendezvous(world(0, 1, Method::kNone), "", "1.0", soon());
  ASSERT_TRUE(met.is_ok());
  EXPECT_EQ(met.value().store, nullptr);
  EXPECT_GE(met.value().secret.key.size(), 16u);
}

TEST_F(StoreRendezvous, a_world_that_was_not_completed_is_refused) {
  EXPECT_EQ(open_rendezvous(world(-1, -1, Method::kPmi), "", "1.0", soon()).status().code,
            Code::kInvalidArgument);
}

TEST_F(StoreRendezvous, ranks_meet_at_a_port_that_rank_0_serves) {
  expect_rendezvous(at_url(0, 3, "tcp://127.0.0.1:" + std::to_string(free_port())));
}

TEST_F(StoreRendezvous, ranks_meet_at_a_store_that_the_launcher_serves) {
  const Secret secret = make_secret().value();
  const std::string file = root_ + "/secret";
  ASSERT_TRUE(write_secret_file(file, secret).is_ok());
  const auto server = serve_store("127.0.0.1", 0, job_, secret, "1.0").value();
  World served = at_url(0, 3, server->url());
  served.is_store_served = true;
  served.secret_file = file;
  expect_rendezvous(served);
}

TEST_F(StoreRendezvous, ranks_meet_in_a_directory) {
  expect_rendezvous(at_url(0, 3, "file://" + root_ + "/shared"));
}

TEST_F(StoreRendezvous, ranks_meet_at_a_seed) { expect_rendezvous(world(0, 3, Method::kSeed)); }

TEST_F(StoreRendezvous, ranks_meet_at_the_name_of_this_host) {
  World named = world(0, 3, Method::kSeed);
  char name[256] = "";
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  if (!resolve(name, 9).is_ok()) GTEST_SKIP() << "this machine cannot resolve its own name";
  named.seed_host = name;
  expect_rendezvous(named);
}

TEST_F(StoreRendezvous, a_seed_that_is_no_host_name_gives_way_to_its_fallback) {
  World node = world(0, 2, Method::kSeed);
  node.seed_host = "no-such-node.invalid";
  node.seed_fallback = "127.0.0.1";
  expect_rendezvous(node);
}

TEST_F(StoreRendezvous, rank_0_of_a_large_world_raises_its_limit_of_descriptors) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{256, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto met = open_rendezvous(world(0, 1500, Method::kSeed), "", "1.0", soon());
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(met.is_ok());
  EXPECT_GE(after.rlim_cur, std::min<rlim_t>(1500, before.rlim_max));
}

TEST_F(StoreRendezvous, meeting_again_and_again_works_in_every_way) {
  const std::string port = std::to_string(free_port());
  for (int round = 0; round < 50 && !HasFailure(); ++round) {
    expect_rendezvous(world(0, 2, Method::kSeed));
    expect_rendezvous(at_url(0, 2, "tcp://127.0.0.1:" + port));
    expect_rendezvous(at_url(0, 2, "file://" + root_ + "/shared"));
  }
}

TEST_F(StoreRendezvous, another_job_on_the_first_seed_port_is_passed_over) {
  const auto other = at_first_seed_port(
      [](int port) { return serve_store("127.0.0.1", port, "another job", make_secret().value(), "1.0"); });
  expect_rendezvous(world(0, 3, Method::kSeed));
}

TEST_F(StoreRendezvous, a_silent_service_on_the_first_seed_port_is_passed_over) {
  const UniqueFd silent = at_first_seed_port([](int port) { return listen_on("127.0.0.1", port); });
  expect_rendezvous(world(0, 2, Method::kSeed));
}

TEST_F(StoreRendezvous, another_program_on_a_seed_port_is_dialled_once_in_a_while) {
  const UniqueFd listener = at_first_seed_port([](int port) { return listen_on("127.0.0.1", port); });
  std::atomic<int> callers = 0;
  std::jthread program([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd waiting{.fd = listener.get(), .events = POLLIN, .revents = 0};
      if (poll(&waiting, 1, 20) <= 0) continue;
      const UniqueFd caller(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      constexpr std::string_view kBanner = "220 mail.example.org ESMTP\r\n";
      (void)send(caller.get(), kBanner.data(), kBanner.size(), MSG_NOSIGNAL);
      ++callers;
    }
  });
  const auto met = open_rendezvous(world(1, 2, Method::kSeed), "", "1.0", Deadline::after(2 * kSecond));
  EXPECT_EQ(met.status().code, Code::kTimeout);
  EXPECT_EQ(callers, 1);
}

TEST_F(StoreRendezvous, all_seed_ports_taken_is_an_error_that_names_the_way_out) {
  std::vector<UniqueFd> taken;
  for (const int port : seed_ports(job_))
    if (auto fd = listen_on("127.0.0.1", port); fd.is_ok()) taken.push_back(std::move(fd).value());
  const auto met = open_rendezvous(world(0, 2, Method::kSeed), "", "1.0", soon());
  ASSERT_EQ(met.status().code, Code::kUnavailable);
  EXPECT_THAT(met.status().why, AllOf(HasSubstr("16 ports"), HasSubstr("RUEDA_STORE")));
}

TEST_F(StoreRendezvous, a_port_in_use_at_the_url_is_named) {
  const UniqueFd taken = listen_on("127.0.0.1", 0).value();
  const std::string port = std::to_string(own_address(taken.get()).port());
  const auto met = open_rendezvous(at_url(0, 2, "tcp://127.0.0.1:" + port), "", "1.0", soon());
  ASSERT_EQ(met.status().code, Code::kUnavailable);
  EXPECT_THAT(met.status().why, AllOf(HasSubstr(port), HasSubstr("in use")));
}

TEST_F(StoreRendezvous, a_missing_rank_0_is_named_with_the_place) {
  for (const World& lonely : {world(1, 2, Method::kSeed), at_url(1, 2, "file://" + root_ + "/shared"),
                              at_url(1, 2, "tcp://127.0.0.1:" + std::to_string(free_port()))}) {
    const auto met = open_rendezvous(lonely, "", "1.0", short_wait());
    ASSERT_EQ(met.status().code, Code::kTimeout);
    EXPECT_THAT(met.status().why, AllOf(HasSubstr("rank 0"), HasSubstr(job_)));
  }
}

TEST_F(StoreRendezvous, a_host_name_that_stays_unknown_is_named_with_its_variable) {
  for (const Rank rank : {0, 1}) {
    const auto met = open_rendezvous(at_url(rank, 2, "tcp://pod-0.invalid:29400"), "", "1.0", short_wait());
    ASSERT_EQ(met.status().code, Code::kTimeout);
    EXPECT_THAT(met.status().why,
                AllOf(HasSubstr("rank " + std::to_string(rank)), HasSubstr("pod-0.invalid (RUEDA_STORE)"),
                      HasSubstr("RUEDA_START_TIMEOUT")));
    World seed = world(rank, 2, Method::kSeed);
    seed.seed_host = "pod-0.invalid";
    seed.seed_variable = "MASTER_ADDR";
    EXPECT_THAT(open_rendezvous(seed, "", "1.0", short_wait()).status().why,
                HasSubstr("pod-0.invalid (MASTER_ADDR)"));
  }
}

TEST_F(StoreRendezvous, in_a_pod_the_manifest_must_mount_a_secret) {
  World pod = at_url(0, 2, "tcp://127.0.0.1:29400");
  pod.is_in_pod = true;
  const auto unset = open_rendezvous(pod, "", "1.0", soon());
  ASSERT_EQ(unset.status().code, Code::kInvalidArgument);
  EXPECT_THAT(unset.status().why, HasSubstr("RUEDA_SECRET_FILE is not set"));
  pod.secret_file = root_ + "/mount/secret";
  const auto missing = open_rendezvous(pod, "", "1.0", soon());
  ASSERT_FALSE(missing.is_ok());
  EXPECT_THAT(missing.status().why,
              HasSubstr("must mount the job's Secret at " + root_ + "/mount, readable"));
}

TEST_F(StoreRendezvous, a_wrong_secret_at_the_url_fails_before_the_deadline) {
  const auto server = serve_store("127.0.0.1", 0, job_, make_secret().value(), "1.0").value();
  const auto met = open_rendezvous(at_url(1, 2, server->url()), "", "1.0", soon());
  ASSERT_EQ(met.status().code, Code::kPermissionDenied);
  EXPECT_THAT(met.status().why, HasSubstr("RUEDA_SECRET_FILE"));
}

// The process that runs this test began before rank 0 failed.
TEST_F(StoreRendezvous, an_interruption_ends_every_wait_for_rank_0) {
  int asked = 0;
  const Interrupted is_interrupted = [&asked] { return ++asked > 2; };
  for (const std::string& url : {"file://" + root_ + "/empty", std::string("tcp://127.0.0.1:1"),
                                 std::string("tcp://pod-0.invalid:29400")}) {
    asked = 0;
    const Status status = open_rendezvous(at_url(1, 2, url), "", "1.0", soon(), is_interrupted).status();
    EXPECT_EQ(status.why, interrupted_status().why) << url;
    EXPECT_EQ(asked, 3);
  }
}

TEST_F(StoreRendezvous, a_store_directory_others_may_write_is_refused) {
  const std::string dir = root_ + "/open";
  ASSERT_EQ(mkdir(dir.c_str(), 0700), 0);
  ASSERT_EQ(chmod(dir.c_str(), 0777), 0);
  EXPECT_EQ(open_file_store(dir).status().code, Code::kPermissionDenied);
  ASSERT_TRUE(open_file_store(root_ + "/made").is_ok());
  struct stat info {};
  ASSERT_EQ(stat((root_ + "/made").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(StoreRendezvous, racers_to_make_the_user_key_end_with_one) {
  const std::string path = user_key_path([](const char* name) { return std::getenv(name); }).value();
  ASSERT_EQ(path, root_ + "/config/rueda/key");
  std::vector<Bytes> keys(4);
  {
    std::vector<std::jthread> racers;  // make_secret differs, so equal keys mean that all but one gave way
    for (Bytes& key : keys) racers.emplace_back([&] { key = user_key(path).value().key; });
  }
  for (const Bytes& key : keys) EXPECT_EQ(key, keys[0]);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(root_ + "/config/rueda"))
    ++files;
  EXPECT_EQ(files, 1u) << "a draft was left behind";
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(StoreRendezvous, a_user_key_that_others_may_read_is_refused) {
  const std::string path = root_ + "/key";
  ASSERT_TRUE(user_key(path).is_ok());
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_EQ(user_key(path).status().code, Code::kPermissionDenied);
}

TEST_F(StoreRendezvous, every_job_has_a_secret_of_its_own) {
  const Secret key = make_secret().value();
  EXPECT_EQ(secret_of_job(key, "a").key, secret_of_job(key, "a").key);
  EXPECT_NE(secret_of_job(key, "a").key, secret_of_job(key, "b").key);
  EXPECT_NE(secret_of_job(key, "a").key, key.key);
}

bool is_mine(const std::string& ip) {
  for (const LocalAddress& address : local_addresses())
    if (address.ip == ip) return true;
  return false;
}

TEST(StoreAddress, an_interface_or_address_asked_for_is_used) {
  EXPECT_EQ(choose_address("lo", "192.0.2.1").value(), "127.0.0.1");
  EXPECT_EQ(choose_address("127.0.0.3", "").value(), "127.0.0.3");
  for (const LocalAddress& address : local_addresses())
    EXPECT_EQ(choose_address(address.ip, "").value(), address.ip);
}

TEST(StoreAddress, an_unknown_interface_is_refused_with_a_list_of_those_there_are) {
  for (const char* unknown : {"eth77", "192.0.2.1"}) {
    const auto chosen = choose_address(unknown, "");
    ASSERT_EQ(chosen.status().code, Code::kInvalidArgument);
    EXPECT_THAT(chosen.status().why, AllOf(HasSubstr(unknown), HasSubstr("lo (127.0.0.1)")));
  }
}

TEST(StoreAddress, towards_this_machine_loopback_is_chosen) {
  for (const char* here : {"localhost", "127.0.0.1", "127.0.0.2"})
    EXPECT_EQ(choose_address("", here).value(), "127.0.0.1") << here;
  EXPECT_EQ(choose_address("", "::1").value(), "::1");
}

TEST(StoreAddress, towards_the_network_an_address_of_this_machine_is_chosen) {
  EXPECT_TRUE(is_mine(choose_address("", "").value()));
  for (const LocalAddress& address : local_addresses())
    if (!address.is_loopback) {
      EXPECT_TRUE(is_mine(choose_address("", address.ip).value())) << address.ip;
    }
}

TEST(StoreAddress, a_host_name_that_does_not_resolve_is_named) {
  EXPECT_THAT(choose_address("", "no-such-host.invalid").status().why, HasSubstr("no-such-host.invalid"));
}

TEST(StoreAddress, ipv6_loopback_serves_and_is_dialled) {
  if (!is_mine("::1")) GTEST_SKIP() << "this machine has no IPv6";
  const Secret secret = make_secret().value();
  const auto server = serve_store("::1", 0, "job", secret, "1.0").value();
  EXPECT_THAT(server->url(), HasSubstr("[::1]:"));
  EXPECT_TRUE(open_tcp_store("::1", server->port(), "job", secret, "1.0", soon()).is_ok());
}

}  // namespace
}  // namespace rueda::store::rendezvous_test
