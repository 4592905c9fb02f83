// What every store does, whatever carries it. Each implementation joins by a factory of clients of one store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "../soon.h"
#include "rueda/base/limits.h"
#include "rueda/store/entries.h"
#include "rueda/store/store.h"
#include "rueda/store/tcp_store.h"

namespace rueda::store::conformance_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// One store; client() opens another handle to it, to be used by one thread.
class Site {
 public:
  virtual ~Site() = default;
  virtual Store& client() = 0;
};

class MemorySite final : public Site {
 public:
  Store& client() override { return *store_; }

 private:
  std::unique_ptr<Store> store_ = make_memory_store();
};

class FileSite final : public Site {
 public:
  FileSite() {
    std::string pattern = std::filesystem::temp_directory_path() / "rueda-store-XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~FileSite() override { std::filesystem::remove_all(root_); }
  Store& client() override { return *clients_.emplace_back(open_file_store(root_ + "/store").value()); }

 private:
  std::string root_;
  std::vector<std::unique_ptr<Store>> clients_;
};

class TcpSiteForTests final : public Site {
 public:
  Store& client() override {
    return *clients_.emplace_back(
        open_tcp_store("127.0.0.1", server_->port(), "job", secret_, "1.0", soon()).value());
  }

 private:
  Secret secret_ = make_secret().value();
  std::unique_ptr<StoreServer> server_ = serve_store("127.0.0.1", 0, "job", secret_, "1.0").value();
  std::vector<std::unique_ptr<Store>> clients_;
};

// Clients in the relay of a host.
class RelaySite final : public Site {
 public:
  Store& client() override {
    HandshakeOutcome refused{};
    const TcpSite site{"127.0.0.1", server_->port(), "job", secret_, "1.0"};
    clients_.push_back(dial_store_of_host(site, soon(), refused).value());
    return *clients_.back();
  }

 private:
  Secret secret_ = make_secret().value();
  std::unique_ptr<StoreServer> server_ = serve_store("127.0.0.1", 0, "job", secret_, "1.0").value();
  std::vector<std::unique_ptr<Store>> clients_;
};

using MakeSite = std::unique_ptr<Site> (*)();

class StoreConformance : public ::testing::TestWithParam<std::pair<const char*, MakeSite>> {
 protected:
  static Deadline now() { return Deadline::after(30 * kMillisecond); }
  std::unique_ptr<Site> site_ = GetParam().second();
};

TEST_P(StoreConformance, what_one_client_sets_another_gets) {
  Store &writer = site_->client(), &reader = site_->client();
  ASSERT_TRUE(writer.set("rank/0", "10.0.0.1:4711", soon()).is_ok());
  EXPECT_EQ(reader.get("rank/0", soon()).value(), "10.0.0.1:4711");
  EXPECT_EQ(reader.try_get("rank/0", soon()).value(), "10.0.0.1:4711");
}

TEST_P(StoreConformance, an_entry_that_is_given_is_found_under_its_rank) {
  Store &one = site_->client(), &two = site_->client();
  std::thread other([&] { EXPECT_TRUE(two.give({"t/", 4, "four", 2}, soon()).is_ok()); });
  ASSERT_TRUE(one.give({"t/", 3, "three", 2}, soon()).is_ok());
  other.join();
  Entries found = decode_entries(one.get(entries_key("t/", 3), soon()).value()).value();
  if (!found.contains(4)) found.merge(decode_entries(one.get(entries_key("t/", 4), soon()).value()).value());
  EXPECT_EQ(found, (Entries{{3, "three"}, {4, "four"}}));
}

TEST_P(StoreConformance, an_entry_that_is_given_again_replaces_the_first) {
  Store& store = site_->client();
  ASSERT_TRUE(store.give({"t/", 3, "first", 1}, soon()).is_ok());
  ASSERT_TRUE(store.give({"t/", 3, "second", 1}, soon()).is_ok());
  EXPECT_EQ(decode_entries(store.get(entries_key("t/", 3), soon()).value()).value(),
            (Entries{{3, "second"}}));
}

TEST_P(StoreConformance, an_announcement_arrives) {
  Store& store = site_->client();
  ASSERT_TRUE(store.announce({"t/", 5, "", 0}, soon()).is_ok());
  EXPECT_EQ(decode_entries(store.get(entries_key("t/", 5), soon()).value()).value(), (Entries{{5, ""}}));
}

TEST_P(StoreConformance, a_shared_answer_waits_for_the_key_or_says_that_it_is_missing) {
  Store &writer = site_->client(), &reader = site_->client();
  EXPECT_EQ(reader.try_get_shared("key", kSecond, soon()).status().code, Code::kUnavailable);
  EXPECT_EQ(reader.get_shared("key", kAnyAge, now()).status().code, Code::kTimeout);
  std::thread sets([&] { EXPECT_TRUE(writer.set("key", "value", soon()).is_ok()); });
  EXPECT_EQ(reader.get_shared("key", kAnyAge, soon()).value(), "value");
  sets.join();
  EXPECT_EQ(reader.try_get_shared("key", 0, soon()).value(), "value");
}

TEST_P(StoreConformance, set_overwrites) {
  Store& store = site_->client();
  ASSERT_TRUE(store.set("key", "a longer first value", soon()).is_ok());
  ASSERT_TRUE(store.set("key", "second", soon()).is_ok());
  EXPECT_EQ(store.get("key", soon()).value(), "second");
}

TEST_P(StoreConformance, keys_and_values_are_any_bytes) {
  Store& store = site_->client();
  const std::string key("a/../b\0c\n\xff*", 11), value("\0\xfe\n\0", 4);
  ASSERT_TRUE(store.set(key, value, soon()).is_ok());
  ASSERT_TRUE(store.set("empty", "", soon()).is_ok());
  EXPECT_EQ(store.get(key, soon()).value(), value);
  EXPECT_EQ(store.get("empty", soon()).value(), "");
}

TEST_P(StoreConformance, the_largest_key_and_value_fit_and_larger_ones_are_refused) {
  Store& store = site_->client();
  const std::string key(kMaxStoreKeyBytes, 'k'), sibling = std::string(kMaxStoreKeyBytes - 1, 'k') + "x";
  const std::string value(kMaxStoreValueBytes, 'v');
  ASSERT_TRUE(store.set(key, value, soon()).is_ok());
  ASSERT_TRUE(store.set(sibling, "other", soon()).is_ok());
  EXPECT_EQ(store.get(key, soon()).value(), value);
  EXPECT_EQ(store.get(sibling, soon()).value(), "other");
  EXPECT_EQ(store.set(key + "k", "", soon()).code, Code::kInvalidArgument);
  EXPECT_EQ(store.set("key", value + "v", soon()).code, Code::kInvalidArgument);
  EXPECT_EQ(store.get("", soon()).status().code, Code::kInvalidArgument);
  EXPECT_EQ(store.get("key", now()).status().code, Code::kTimeout) << "a refused value was kept";
}

TEST_P(StoreConformance, get_waits_until_another_client_sets_the_key) {
  Store &waiter = site_->client(), &setter = site_->client();
  Result<std::string> got = Status(Code::kInternal, "never ran");
  std::thread thread([&] { got = waiter.get("late", soon()); });
  EXPECT_TRUE(setter.set("not this one", "x", soon()).is_ok());
  EXPECT_TRUE(setter.set("late", "value", soon()).is_ok());
  thread.join();
  EXPECT_EQ(got.value(), "value");
}

TEST_P(StoreConformance, a_timeout_names_key_and_store_and_leaves_the_client_usable) {
  Store& store = site_->client();
  const Result<std::string> missing = store.get("missing key", now());
  ASSERT_EQ(missing.status().code, Code::kTimeout);
  EXPECT_THAT(missing.status().why, AllOf(HasSubstr("missing key"), HasSubstr(store.description())));
  ASSERT_TRUE(store.set("missing key", "there", soon()).is_ok());
  ASSERT_TRUE(store.set("other", "one", soon()).is_ok());
  EXPECT_EQ(store.get("other", soon()).value(), "one");
}

TEST_P(StoreConformance, a_deadline_that_has_passed_does_not_wait) {
  EXPECT_EQ(site_->client().get("missing", Deadline::at(0)).status().code, Code::kTimeout);
}

TEST_P(StoreConformance, try_get_of_an_absent_key_is_unavailable) {
  EXPECT_EQ(site_->client().try_get("missing", soon()).status().code, Code::kUnavailable);
}

TEST_P(StoreConformance, add_counts_from_zero_and_negative_amounts_subtract) {
  Store& store = site_->client();
  EXPECT_EQ(store.add("counter", 5, soon()).value(), 5);
  EXPECT_EQ(store.add("counter", -7, soon()).value(), -2);
  EXPECT_EQ(store.get("counter", soon()).value(), "-2");
}

TEST_P(StoreConformance, add_refuses_text_and_overflow) {
  Store& store = site_->client();
  ASSERT_TRUE(store.set("word", "seven", soon()).is_ok());
  EXPECT_EQ(store.add("word", 1, soon()).status().code, Code::kInvalidArgument);
  ASSERT_TRUE(store.add("big", INT64_MAX, soon()).is_ok());
  EXPECT_EQ(store.add("big", 1, soon()).status().code, Code::kInvalidArgument);
  EXPECT_EQ(store.get("word", soon()).value(), "seven");
}

TEST_P(StoreConformance, adds_of_many_clients_are_atomic) {
  constexpr int kThreads = 4, kAdds = 50;
  std::vector<std::jthread> threads;
  std::vector<Store*> clients;
  for (int i = 0; i < kThreads; ++i) clients.push_back(&site_->client());
  for (Store* client : clients)
    threads.emplace_back([client] {
      for (int i = 0; i < kAdds; ++i) EXPECT_TRUE(client->add("sum", 1, soon()).is_ok());
    });
  threads.clear();
  EXPECT_EQ(site_->client().get("sum", soon()).value(), std::to_string(kThreads * kAdds));
}

TEST_P(StoreConformance, compare_and_set_changes_only_what_is_expected) {
  Store& store = site_->client();
  const auto compare_and_set = [&](const char* expected, const char* value) {
    return store.compare_and_set("key", expected, value, soon()).value();
  };
  EXPECT_EQ(compare_and_set("x", "a"), "") << "an absent key counts as empty";
  EXPECT_EQ(compare_and_set("", "a"), "a");
  EXPECT_EQ(compare_and_set("", "b"), "a");
  EXPECT_EQ(compare_and_set("a", "b"), "b");
  EXPECT_EQ(store.get("key", soon()).value(), "b");
  const std::string large(kMaxStoreValueBytes, 'x');
  EXPECT_EQ(store.compare_and_set("key", large, "b", soon()).status().code, Code::kInvalidArgument);
}

TEST_P(StoreConformance, of_rivals_that_compare_and_set_one_wins_and_all_learn_who) {
  constexpr int kRivals = 8;
  std::vector<Store*> clients;
  for (int i = 0; i < kRivals; ++i) clients.push_back(&site_->client());
  std::vector<std::string> seen(kRivals);
  {
    std::vector<std::jthread> rivals;
    for (size_t i = 0; i < kRivals; ++i)
      rivals.emplace_back([&, i] {
        seen[i] = clients[i]->compare_and_set("view", "", "of " + std::to_string(i), soon()).value();
      });
  }
  for (const std::string& one : seen) EXPECT_EQ(one, seen[0]);
  EXPECT_EQ(seen[0].substr(0, 3), "of ");
}

TEST_P(StoreConformance, compare_and_set_wakes_who_waits_for_the_key) {
  Store& other = site_->client();
  Result<std::string> got = Status(Code::kInternal, "not asked");
  {
    std::jthread waiting([&] { got = other.get("view", soon()); });
    ASSERT_TRUE(site_->client().compare_and_set("view", "", "2", soon()).is_ok());
  }
  EXPECT_EQ(got.value(), "2");
}

TEST_P(StoreConformance, a_get_wakes_when_a_counter_first_appears) {
  Store &waiter = site_->client(), &adder = site_->client();
  Result<std::string> got = Status(Code::kInternal, "never ran");
  std::thread thread([&] { got = waiter.get("arrived", soon()); });
  EXPECT_EQ(adder.add("arrived", 1, soon()).value(), 1);
  thread.join();
  EXPECT_EQ(got.value(), "1");
}

TEST_P(StoreConformance, remove_prefix_removes_exactly_the_keys_below_it) {
  Store& store = site_->client();
  const std::string deep(200, 'p');
  for (const std::string& key : {std::string("a/1"), std::string("a/2"), std::string("b"), deep + "1",
                                 deep + "2", std::string(199, 'p') + "q"})
    ASSERT_TRUE(store.set(key, "x", soon()).is_ok());
  ASSERT_TRUE(store.remove_prefix("a/", soon()).is_ok());
  ASSERT_TRUE(store.remove_prefix(deep, soon()).is_ok());
  for (const std::string& key : {std::string("a/1"), std::string("a/2"), deep + "1", deep + "2"})
    EXPECT_EQ(store.try_get(key, soon()).status().code, Code::kUnavailable) << key;
  EXPECT_TRUE(store.try_get("b", soon()).is_ok());
  EXPECT_TRUE(store.try_get(std::string(199, 'p') + "q", soon()).is_ok());
  ASSERT_TRUE(store.remove_prefix("", soon()).is_ok());
  EXPECT_EQ(store.try_get("b", soon()).status().code, Code::kUnavailable);
}

TEST_P(StoreConformance, many_ranks_exchange_their_addresses) {
  constexpr int kRanks = 8;
  std::vector<Store*> clients;
  for (int i = 0; i < kRanks; ++i) clients.push_back(&site_->client());
  std::vector<std::jthread> ranks;
  for (int me = 0; me < kRanks; ++me)
    ranks.emplace_back([me, store = clients[static_cast<size_t>(me)]] {
      EXPECT_TRUE(store->set("rank/" + std::to_string(me), "at " + std::to_string(me), soon()).is_ok());
      for (int peer = 0; peer < kRanks; ++peer)
        EXPECT_EQ(store->get("rank/" + std::to_string(peer), soon()).value(), "at " + std::to_string(peer));
    });
}

template <class T>
std::unique_ptr<Site> make() {
  return std::make_unique<T>();
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreConformance,
                         ::testing::Values(std::pair<const char*, MakeSite>("memory", &make<MemorySite>),
                                           std::pair<const char*, MakeSite>("file", &make<FileSite>),
                                           std::pair<const char*, MakeSite>("tcp", &make<TcpSiteForTests>),
                                           std::pair<const char*, MakeSite>("relay", &make<RelaySite>)),
                         [](const auto& info) { return info.param.first; });

}  // namespace
}  // namespace rueda::store::conformance_test
