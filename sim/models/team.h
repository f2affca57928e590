// Threads that do the parts of a piece of work together, again and again.
//
// A piece is short, from microseconds to milliseconds, so who waits looks for a while before it sleeps. Whoever is free
// takes the next part: which thread does it makes no difference to what it does.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

class Team {
public:
    // `members`: the calling thread and as many others as it takes.
    explicit Team(int members) : others{members - 1} {
        for (int n = 0; n < others; ++n) threads.emplace_back([this] { serve(); });
    }

    ~Team() {
        over = true;
        begin();
        for (std::thread& thread : threads) thread.join();
    }

    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int members() const { return others + 1; }

    // Calls `part` with 0 to `count` - 1, all of them before it returns; throws what one of them threw.
    void each(int count, const std::function<void(int)>& part) {
        work = &part;
        parts = count;
        next.store(0, std::memory_order_relaxed);
        busy.store(others, std::memory_order_relaxed);
        begin();
        take();
        for (int left; (left = busy.load(std::memory_order_acquire)) != 0;) look(busy, left);
        if (error) std::rethrow_exception(std::exchange(error, nullptr));
    }

private:
    // A look takes some tens of nanoseconds, waking a sleeper some tens of microseconds.
    static constexpr int LOOKS = 1000;

    template <typename Value>
    static void look(std::atomic<Value>& watched, Value seen) {
        for (int n = 0; n < LOOKS; ++n) {
            if (watched.load(std::memory_order_acquire) != seen) return;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        watched.wait(seen, std::memory_order_acquire);
    }

    void begin() {
        round.fetch_add(1, std::memory_order_release);
        round.notify_all();
    }

    void serve() {
        for (uint32_t before = 0;;) {
            for (uint32_t now; (now = round.load(std::memory_order_acquire)) == before;) look(round, now);
            ++before;
            if (over) return;
            take();
            if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) busy.notify_one();
        }
    }

    void take() {
        for (int n; (n = next.fetch_add(1, std::memory_order_relaxed)) < parts;) {
            try {
                (*work)(n);
            } catch (...) {
                const std::lock_guard guard{lock};
                error = std::current_exception();
            }
        }
    }

    const int others;
    const std::function<void(int)>* work = nullptr;
    int parts = 0;
    bool over = false;
    std::mutex lock;
    std::exception_ptr error;
    alignas(64) std::atomic<uint32_t> round{0};
    alignas(64) std::atomic<int> next{0};
    alignas(64) std::atomic<int> busy{0};
    // Last, so that all else is there when they begin.
    std::vector<std::thread> threads;
};
