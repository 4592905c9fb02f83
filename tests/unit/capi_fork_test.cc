// Children of fork() answer what their parent knew, also when another thread held a lock at the fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string_view>
#include <thread>
#include <vector>

#include "rueda/rueda.h"

namespace {

constexpr unsigned kPatienceSeconds = 30;  // a child that waits for a lock would wait for ever

// The exit status of a child that runs `work`; 128 + the signal that ended it.
template <class Work>
int status_of_child(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kPatienceSeconds);
    _exit(work());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// 0 if the child knows that it is the one rank of its job; otherwise which question it answered wrongly.
int ask_everything() {
  int32_t id = -1, rank = -1;
  if (rueda_is_initialized() != 1) return 1;
  if (rueda_rank() != 0 || rueda_size() != 1) return 2;
  if (rueda_local_rank() != 0 || rueda_local_size() != 1) return 3;
  if (rueda_cross_rank() != 0 || rueda_cross_size() != 1 || rueda_is_homogeneous() != 1) return 4;
  if (rueda_process_set_ids(&id, 1) != 1 || id != 0) return 5;
  if (rueda_process_set_ranks(0, &rank, 1) != 1 || rank != 0) return 6;
  if (rueda_process_set_ranks(7, nullptr, 0) != -1) return 7;
  if (rueda_epoch() < 0) return 8;
  if (std::string_view(rueda_describe()).find("\"is_initialized\":true") == std::string_view::npos) return 9;
  return 0;
}

int is_refused() {
  std::array<float, 2> values{};
  const int64_t shape = 2;
  rueda_request request{};
  request.struct_size = sizeof(request);
  request.what = RUEDA_ALLREDUCE;
  request.dtype = RUEDA_FLOAT32;
  request.op = RUEDA_SUM;
  request.name = "x";
  request.ndim = 1;
  request.shape = &shape;
  request.input = request.output = values.data();
  request.device = -1;
  int64_t handle = 0;
  const auto names_fork = [] {
    return std::string_view(rueda_last_error()).find("was forked from one") != std::string_view::npos;
  };
  if (rueda_submit(&request, 1, &handle) != RUEDA_NOT_INITIALIZED || !names_fork()) return 1;
  if (rueda_init(nullptr) != RUEDA_UNAVAILABLE || !names_fork()) return 2;
  if (rueda_health() == RUEDA_OK || !names_fork()) return 3;
  rueda_shutdown();
  return rueda_is_initialized() == 0 && rueda_rank() == -1 && rueda_process_set_ids(nullptr, 0) == -1 ? 0 : 4;
}

TEST(Fork, a_child_knows_what_its_parent_knew_and_cannot_use_its_engine) {
  ASSERT_EQ(rueda_init(nullptr), RUEDA_OK) << rueda_last_error();
  EXPECT_EQ(status_of_child(ask_everything), 0);
  EXPECT_EQ(status_of_child(is_refused), 0);
  EXPECT_EQ(status_of_child([] { return status_of_child(ask_everything); }), 0) << "a grandchild";
  EXPECT_EQ(ask_everything(), 0) << "the parent";
  rueda_shutdown();
  EXPECT_EQ(status_of_child([] { return rueda_is_initialized() == 0 && rueda_local_size() == -1 ? 0 : 1; }),
            0);
}

TEST(Fork, a_child_answers_whatever_locks_other_threads_held) {
  ASSERT_EQ(rueda_init(nullptr), RUEDA_OK) << rueda_last_error();
  std::atomic<bool> is_over{false};
  std::vector<std::jthread> busy;
  for (int i = 0; i < 2; ++i)
    busy.emplace_back([&is_over] {
      int32_t rank = 0;
      while (!is_over) {
        rueda_process_set_ranks(0, &rank, 1);
        rueda_size();
      }
    });
  for (int i = 0; i < 200 && !HasFailure(); ++i)
    EXPECT_EQ(status_of_child(ask_everything), 0) << "fork " << i;
  is_over = true;
  busy.clear();
  rueda_shutdown();
}

}  // namespace
