// Children of this process that answer in a line each.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>

namespace {

constexpr int PARENT = -1;

// Forks. In the child, where it is to answer. In the parent, when the child has ended, PARENT: "NUMBER ANSWER" has been
// printed, or "NUMBER died STATUS" in the place of an answer.
int answering_child(const std::string& number) {
    int ends[2];
    if (pipe(ends)) throw std::runtime_error("no pipe can be made");
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("no process can be made");
    if (child == 0) {
        close(ends[0]);
        return ends[1];
    }
    close(ends[1]);
    std::string text;
    char part[4096];
    for (ssize_t got; (got = read(ends[0], part, sizeof part)) > 0;) text.append(part, got);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (status || text.empty()) text = "died " + std::to_string(status);
    std::printf("%s %s\n", number.c_str(), text.c_str());
    std::fflush(stdout);
    return PARENT;
}

// The end of a child.
[[noreturn]] void reply(int answer, const std::string& text) {
    const char* from = text.data();
    for (size_t left = text.size(); left;) {
        const ssize_t wrote = write(answer, from, left);
        if (wrote <= 0) _exit(1);
        from += wrote;
        left -= wrote;
    }
    _exit(0);
}

}  // namespace
