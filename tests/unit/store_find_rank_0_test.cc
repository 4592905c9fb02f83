// A rank that looks for rank 0 finds listeners that refuse it: which of them end the search.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <thread>

#include "../soon.h"
#include "rueda/store/job_id.h"
#include "rueda/store/store_url.h"
#include "rueda/store/world.h"

namespace rueda::store::find_rank_0_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Method = World::Method;

enum class Meeting { kUrl, kSeed };

class StoreFindRank0 : public ::testing::TestWithParam<Meeting> {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "rueda-find-XXXXXX";
    root_ = mkdtemp(pattern.data());
    setenv("XDG_CONFIG_HOME", (root_ + "/config").c_str(), 1);
    me_.rank = 1;
    me_.size = 2;
    me_.local_rank = me_.local_size = -1;
    me_.secret_file = root_ + "/secret";
    ASSERT_TRUE(write_secret_file(me_.secret_file, secret_).is_ok());
    // A job whose first seed port is free.
    for (int i = 0; i < 20 && !server_; ++i) {
      me_.job = "find" + root_.substr(root_.rfind('-')) + std::to_string(i);
      port_ = seed_ports(me_.job)[0];
      auto tried = serve_store("127.0.0.1", port_, me_.job, secret_, "1.0");
      if (tried.is_ok()) server_ = std::move(tried).value();
    }
    ASSERT_NE(server_, nullptr);
    server_.reset();
    me_.seed_host = "127.0.0.1";
    me_.url = "tcp://127.0.0.1:" + std::to_string(port_);
    me_.method = GetParam() == Meeting::kUrl ? Method::kUrl : Method::kSeed;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void serve(const std::string& job, const Secret& secret, const std::string& release = "1.0") {
    server_ = serve_store("127.0.0.1", port_, job, secret, release).value();
  }
  void await_refusal() const {
    const Deadline deadline = soon();
    while (server_->last_refusal().empty() && !deadline.is_past()) usleep(1000);
    EXPECT_FALSE(server_->last_refusal().empty());
  }
  // The listener refuses the rank and ends; then the rank 0 that was meant comes.
  void expect_met_after(const std::string& job, const Secret& secret, const std::string& release = "1.0") {
    serve(job, secret, release);
    Result<Rendezvous> met = Status(Code::kInternal, "not met");
    std::jthread rank_1([&] { met = open_rendezvous(me_, "", "1.0", soon()); });
    await_refusal();
    server_.reset();
    serve(me_.job, secret_);
    rank_1.join();
    EXPECT_TRUE(met.is_ok()) << met.status().to_string();
  }

  std::string root_;
  World me_;
  int port_ = 0;
  Secret secret_ = make_secret().value();
  std::unique_ptr<StoreServer> server_;
};

INSTANTIATE_TEST_SUITE_P(Every, StoreFindRank0, ::testing::Values(Meeting::kUrl, Meeting::kSeed),
                         [](const auto& param) { return param.param == Meeting::kUrl ? "url" : "seed"; });

TEST_P(StoreFindRank0, a_wrong_secret_ends_the_search) {
  serve(me_.job, make_secret().value());
  const auto met = open_rendezvous(me_, "", "1.0", soon());
  ASSERT_EQ(met.status().code, Code::kPermissionDenied);
  EXPECT_THAT(met.status().why, AllOf(HasSubstr("does not know the secret of job '" + me_.job),
                                      Not(HasSubstr("home directory"))));
  EXPECT_THAT(server_->last_refusal(), HasSubstr("does not know the secret"));
}

TEST_P(StoreFindRank0, another_release_ends_the_search) {
  serve(me_.job, secret_, "0.9");
  const auto met = open_rendezvous(me_, "", "1.0", soon());
  ASSERT_EQ(met.status().code, Code::kPermissionDenied);
  EXPECT_THAT(met.status().why, AllOf(HasSubstr("1.0"), HasSubstr("0.9")));
}

TEST_P(StoreFindRank0, an_earlier_job_is_waited_for) { expect_met_after("earlier", make_secret().value()); }

// It has the name of this job and a secret or a release of its own, and is in its last moments.
TEST_P(StoreFindRank0, a_store_that_refuses_once_and_ends_is_not_believed) {
  expect_met_after(me_.job, make_secret().value());
  server_.reset();
  expect_met_after(me_.job, secret_, "0.9");
}

TEST_P(StoreFindRank0, another_job_that_stays_is_named_at_the_deadline) {
  serve("another", make_secret().value());
  const auto met = open_rendezvous(me_, "", "1.0", Deadline::after(3 * kSecond));
  ASSERT_EQ(met.status().code, Code::kTimeout);
  EXPECT_THAT(met.status().why, AllOf(HasSubstr("another job than '" + me_.job),
                                      HasSubstr("did not find rank 0"), Not(HasSubstr("home directory"))));
}

TEST_P(StoreFindRank0, a_store_of_the_launcher_is_believed_at_once) {
  if (GetParam() == Meeting::kSeed) GTEST_SKIP() << "a launcher's store has a URL";
  me_.is_store_served = true;
  serve("another", secret_);
  EXPECT_EQ(open_rendezvous(me_, "", "1.0", soon()).status().code, Code::kPermissionDenied);
}

// Nobody has given the ranks one secret: the job of the same name may be another user's.
TEST_P(StoreFindRank0, with_the_users_key_a_job_of_this_name_on_a_seed_port_is_passed_over) {
  if (GetParam() == Meeting::kUrl) GTEST_SKIP() << "a URL names one port";
  me_.secret_file.clear();
  serve(me_.job, make_secret().value());
  World first = me_;
  first.rank = 0;
  Result<Rendezvous> met = Status(Code::kInternal, "not met"), served = met.status();
  std::jthread rank_1([&] { met = open_rendezvous(me_, "", "1.0", soon()); });
  await_refusal();
  served = open_rendezvous(first, "", "1.0", soon());
  rank_1.join();
  EXPECT_TRUE(served.is_ok()) << served.status().to_string();
  EXPECT_TRUE(met.is_ok()) << met.status().to_string();
}

}  // namespace
}  // namespace rueda::store::find_rank_0_test
