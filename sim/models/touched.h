// An array in a model that tells when one of its words is read or written.
#pragma once

#include <cstddef>

// Who hears of it, or null: `at` is where the word lies.
struct TouchListener {
    virtual void touched(const void* at) = 0;

protected:
    ~TouchListener() = default;
};
inline TouchListener* touch_listener = nullptr;

template <typename Value, std::size_t DEPTH>
class Touched {
public:
    Value& operator[](size_t index) {
        if (__builtin_expect(touch_listener != nullptr, 0)) touch_listener->touched(&held[index]);
        return held[index];
    }
    const Value& operator[](size_t index) const { return const_cast<Touched&>(*this)[index]; }

private:
    Value held[DEPTH];
};
