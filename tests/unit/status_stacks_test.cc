#include "rueda/status/stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "../soon.h"
#include "rueda/base/check.h"
#include "rueda/base/unique_fd.h"

namespace rueda::status::stacks_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr const char* kText =
    "Thread 0x00007f0000000002 (most recent call first):\n"
    "  File \"/a in b/train, line 3.py\", line 12 in step\n"
    "  File \"<string>\", line 1 in <module>\n"
    "\n"
    "Current thread 0x00007f0000000001 (most recent call first):\n"
    "  <no Python frame>\n"
    "  File \"x.py\", line ??? in f\n";

TEST(PythonText, each_thread_has_its_frames_innermost_first) {
  const std::vector<PythonThread> threads = parse_python_text(kText);
  ASSERT_THAT(threads, SizeIs(2));
  EXPECT_EQ(threads[0].ident, 0x7f0000000002u);
  ASSERT_THAT(threads[0].frames, SizeIs(2));
  EXPECT_EQ(threads[0].frames[0].file, "/a in b/train, line 3.py");
  EXPECT_EQ(threads[0].frames[0].line, 12);
  EXPECT_EQ(threads[0].frames[0].function, "step");
  ASSERT_THAT(threads[1].frames, SizeIs(1));
  EXPECT_EQ(threads[1].frames[0].line, 0);
}

TEST(PythonText, cut_and_foreign_lines_are_left_out) {
  EXPECT_THAT(parse_python_text(""), IsEmpty());
  EXPECT_THAT(parse_python_text("  File \"a.py\", line 1 in f\n"), IsEmpty());  // of no thread
  const std::vector<PythonThread> threads =
      parse_python_text("Thread 0x1 [main] (most recent call first):\n  ...\n  File \"a");
  ASSERT_THAT(threads, SizeIs(1));
  EXPECT_THAT(threads[0].frames, IsEmpty());
}

TEST(ThreadState, name_state_and_blocked_signals_are_read) {
  const ThreadState state =
      parse_thread_state(7, "Name:\tpt main\nState:\tD (disk sleep)\nSigBlk:\tfffffffe7ffbfeff\n");
  EXPECT_EQ(state.tid, 7);
  EXPECT_EQ(state.name, "pt main");
  EXPECT_EQ(state.state, 'D');
  EXPECT_EQ(state.blocked_signals, 0xfffffffe7ffbfeffu);
  EXPECT_EQ(parse_thread_state(8, "").state, '?');
}

TEST(JoinStacks, threads_are_joined_by_ident_and_the_answering_one_is_left_out) {
  std::vector<NativeStack> native(3);
  native[0].thread.tid = 10;
  native[0].ident = 0x7f0000000002;
  native[1].thread.tid = 11;
  native[1].ident = 0x7f0000000001;
  native[2].thread.tid = 12;
  native[2].missing = "it blocks signals";
  const Stacks stacks =
      join_stacks(native, {.text = kText, .has_lock = true, .thread = 0x7f0000000001, .missing = ""});
  ASSERT_THAT(stacks.threads, SizeIs(2));
  EXPECT_THAT(stacks.threads[0].python, SizeIs(2));
  EXPECT_EQ(stacks.threads[1].native.thread.tid, 12);
  const nlohmann::json read = nlohmann::json::parse(stacks_json(stacks));
  EXPECT_EQ(read["threads"][0]["python"][0]["function"], "step");
  EXPECT_EQ(read["threads"][1]["native_missing"], "it blocks signals");
  EXPECT_TRUE(read["python_had_lock"]);
}

TEST(JoinStacks, a_python_thread_without_a_native_stack_is_kept) {
  const Stacks stacks = join_stacks({}, {.text = kText, .has_lock = false, .thread = 0, .missing = ""});
  ASSERT_THAT(stacks.threads, SizeIs(2));
  EXPECT_THAT(stacks.threads[0].native.missing, Not(IsEmpty()));
}

TEST(StacksText, is_cut_at_the_end_of_a_line) {
  const Stacks stacks = join_stacks({}, {.text = kText, .has_lock = false, .thread = 0, .missing = ""});
  const std::string whole = stacks_text(stacks, 10'000);
  EXPECT_THAT(whole, HasSubstr("  step (/a in b/train, line 3.py:12)\n"));
  const std::string cut = stacks_text(stacks, 50);
  EXPECT_LE(cut.size(), 50u);
  EXPECT_TRUE(whole.starts_with(cut));
  EXPECT_TRUE(cut.ends_with('\n'));
}

TEST(StacksText, functions_without_names_and_threads_alike_take_one_line) {
  const auto unnamed = [](uint64_t offset) {
    return NativeFrame{.function = "", .module = "libc.so.6", .offset = offset};
  };
  Stacks stacks;
  for (int tid = 20; tid < 30; ++tid) {
    ThreadStack& idle = stacks.threads.emplace_back();
    idle.native.thread = {.tid = tid, .name = "python", .state = 'S', .blocked_signals = 0};
    idle.native.frames = {unnamed(0x90f16), unnamed(0x93975)};
  }
  ThreadStack main;
  main.native.thread.tid = 1;
  main.native.thread.name = "main";
  main.python = {{.file = "train.py", .line = 3, .function = "step"}};
  main.native.frames = {unnamed(1),
                        unnamed(2),
                        {.function = "PyEval", .module = "python3.11", .offset = 3},
                        unnamed(4),
                        unnamed(5)};
  stacks.threads.insert(stacks.threads.begin(), main);
  EXPECT_EQ(stacks_text(stacks, 10'000),
            "thread 1 main\n"
            "  step (train.py:3)\n"
            "  2 functions without a name (libc.so.6, …)\n"
            "  PyEval (python3.11)\n"
            "10 threads alike: 20 python, 21 python, 22 python, 23 python, …\n"
            "  a function without a name (libc.so.6)\n");
}

std::atomic<int> g_interruptions{0};

// Returns when the other end of the pipe is closed.
void wait_in_kernel(int leave) {
  char byte = 0;
  while (read(leave, &byte, 1) < 0) ++g_interruptions;
}

// A thread that waits in read(2) until it is released.
class Sleeper {
 public:
  explicit Sleeper(void (*body)(int), bool blocks_signals = false) {
    int ends[2] = {-1, -1};
    RUEDA_CHECK(pipe(ends) == 0, "no pipe");
    leave_ = UniqueFd(ends[0]);
    released_ = UniqueFd(ends[1]);
    std::promise<int> started;
    std::future<int> tid = started.get_future();
    thread_ = std::thread([this, body, blocks_signals, &started] {
      sigset_t all;
      sigfillset(&all);
      if (blocks_signals) pthread_sigmask(SIG_SETMASK, &all, nullptr);
      prctl(PR_SET_NAME, "sleeper");
      started.set_value(static_cast<int>(syscall(SYS_gettid)));
      body(leave_.get());
    });
    tid_ = tid.get();
  }
  ~Sleeper() {
    released_.reset();
    thread_.join();
  }
  [[nodiscard]] int tid() const { return tid_; }

 private:
  UniqueFd leave_, released_;
  int tid_ = 0;
  std::thread thread_;
};

const NativeStack* find(const std::vector<NativeStack>& stacks, int tid) {
  for (const NativeStack& stack : stacks)
    if (stack.thread.tid == tid) return &stack;
  return nullptr;
}

TEST(NativeStacks, a_thread_that_sleeps_in_the_kernel_shows_its_frames_and_goes_on) {
  g_interruptions = 0;
  const Sleeper sleeper(wait_in_kernel);
  std::vector<NativeStack> stacks;
  const NativeStack* found = nullptr;
  const auto is_there = [&] {
    stacks = capture_native(soon(), Caller::kLeftOut);
    found = find(stacks, sleeper.tid());
    return found != nullptr && std::ranges::any_of(found->frames, [](const NativeFrame& frame) {
             return frame.function.ends_with("read");
           });
  };
  // It may not have reached read(2) yet.
  for (int tries = 0; tries < 1'000 && !is_there(); ++tries) std::this_thread::yield();
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->missing, "");
  EXPECT_EQ(found->thread.name, "sleeper");
  EXPECT_TRUE(std::ranges::any_of(found->frames, [](const NativeFrame& frame) {
    return frame.function.ends_with("read") && frame.module.starts_with("libc");
  }));
  EXPECT_EQ(g_interruptions, 0);  // SA_RESTART
  EXPECT_EQ(find(stacks, static_cast<int>(syscall(SYS_gettid))), nullptr);
}

TEST(NativeStacks, a_thread_that_blocks_signals_is_named_and_costs_no_wait) {
  const Sleeper sleeper(wait_in_kernel, true);
  const std::vector<NativeStack> stacks = capture_native(soon(), Caller::kLeftOut);
  const NativeStack* const found = find(stacks, sleeper.tid());
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->missing, "it blocks signals");
}

TEST(NativeStacks, a_thread_of_ours_can_admit_the_signal) {
  const Sleeper sleeper(
      [](int leave) {
        admit_stack_signal();
        wait_in_kernel(leave);
      },
      true);
  const NativeStack* found = nullptr;
  std::vector<NativeStack> stacks;
  for (int tries = 0; tries < 1'000 && (found == nullptr || !found->missing.empty()); ++tries) {
    stacks = capture_native(soon(), Caller::kLeftOut);
    found = find(stacks, sleeper.tid());
    ASSERT_NE(found, nullptr);
    if (!found->missing.empty()) usleep(1'000);  // it has not come so far yet
  }
  EXPECT_EQ(found->missing, "");
}

TEST(NativeStacks, the_caller_is_included_on_request) {
  const std::vector<NativeStack> stacks = capture_native(soon(), Caller::kIncluded);
  const NativeStack* const found = find(stacks, static_cast<int>(syscall(SYS_gettid)));
  ASSERT_NE(found, nullptr);
  EXPECT_THAT(found->frames, Not(IsEmpty()));
}

TEST(NativeStacks, nothing_is_asked_after_the_deadline) {
  const Sleeper sleeper(wait_in_kernel);
  const std::vector<NativeStack> stacks = capture_native(Deadline::at(0), Caller::kLeftOut);
  ASSERT_NE(find(stacks, sleeper.tid()), nullptr);
  EXPECT_EQ(find(stacks, sleeper.tid())->missing, "there was no time left");
}

TEST(NativeStacks, signals_of_the_program_are_not_taken) {
  ASSERT_TRUE(prepare_native_stacks());
  const int signal = free_signal();
  ASSERT_NE(signal, 0);
  struct sigaction mine {};
  mine.sa_handler = [](int) {};
  sigaction(signal, &mine, nullptr);
  EXPECT_NE(free_signal(), signal);
  mine.sa_handler = SIG_DFL;
  sigaction(signal, &mine, nullptr);
}

TEST(PythonStacks, a_source_without_descriptors_or_handler_is_refused) {
  EXPECT_FALSE(set_python_source({}).is_ok());
  const Status unhandled = set_python_source(
      {.signal = free_signal(), .ask_fd = 1, .done_fd = 1, .with_lock_fd = 1, .without_lock_fd = 1});
  EXPECT_THAT(unhandled.why, HasSubstr("has no handler"));
  EXPECT_THAT(capture_python(Deadline::after(kSecond)).missing, HasSubstr("no front end"));
}

}  // namespace
}  // namespace rueda::status::stacks_test
