// When words of memories are used next, in models whose arrays tell of it (`touched.h`).
#pragma once

#include <deque>

#include "gpu.h"
#include "history.h"
#include "touched.h"

namespace {

// The first cycle, from a given one on, in which a word of a memory is read or written.
class FirstUses final : public TouchListener {
public:
    static constexpr uint64_t NEVER = std::numeric_limits<uint64_t>::max();

    // Models are advanced one after the other, each through cycles that its history tells.
    void add(const Gpu& gpu, const History& history) {
        models.push_back({reinterpret_cast<const unsigned char*>(gpu.model.rootp), &history,
                          std::vector<int>(sizeof *gpu.model.rootp, NOBODY)});
    }

    // Where the cycle will be, NEVER until then.
    const uint64_t* watch(size_t gpu, const unsigned char* word, uint64_t from) {
        int& place = models.at(gpu).places.at(word - models[gpu].root);
        if (place == NOBODY) {
            place = static_cast<int>(waiting.size());
            waiting.emplace_back();
        }
        uses.push_back({from, NEVER});
        waiting[place].push_back(&uses.back());
        return &uses.back().cycle;
    }

    void touched(const void* at) override {
        for (const Model& model : models) {
            const size_t offset = static_cast<const unsigned char*>(at) - model.root;
            if (offset >= model.places.size()) continue;
            if (model.places[offset] != NOBODY) note(waiting[model.places[offset]], model.history->current());
            return;
        }
    }

private:
    static constexpr int NOBODY = -1;
    struct Use {
        uint64_t from, cycle;
    };
    struct Model {
        const unsigned char* root;
        const History* history;
        // By the byte that a word begins with, a list in `waiting`.
        std::vector<int> places;
    };

    static void note(std::vector<Use*>& list, uint64_t now) {
        for (size_t n = 0; n < list.size();) {
            if (now >= list[n]->from) {
                list[n]->cycle = now;
                list[n] = list.back();
                list.pop_back();
            } else {
                ++n;
            }
        }
    }

    std::vector<Model> models;
    std::deque<Use> uses;
    std::vector<std::vector<Use*>> waiting;
};

}  // namespace
