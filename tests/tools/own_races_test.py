"""own_races.py tells our races from those that only seem so in libraries."""

import unittest

import own_races

RACE = """WARNING: ThreadSanitizer: data race (pid=1)
  Write of size 8 at 0x1 by thread T2 (mutexes: write M1):
    #0 operator delete(void*, unsigned long) ../libsanitizer/tsan/tsan_new_delete.cpp:150 (libtsan.so.2+0x8)
    #1 std::vector<int>::clear() /usr/include/c++/12/bits/stl_vector.h:1 (x+0x1)
    #2 {first}

  Previous read of size 8 at 0x1 by main thread:
    #0 {second}
    #1 main ../server/main.cc:9 (x+0x1)

  Location is heap block of size 8 at 0x1 allocated by main thread:
    #0 operator new(unsigned long) ../libsanitizer/tsan/tsan_new_delete.cpp:64 (libtsan.so.2+0x8)
"""
OURS = "leeway::Engine::Leave(unsigned long) ../server/engine_sessions.cc:64 (x+0x1)"
LAMBDA = "operator() ../server/engine.cc:109 (x+0x1)"
LIBRARY = "grpc_core::Arena::~Arena() <null> (libgrpc.so.29+0x4)"
TEMPLATE = "grpc::internal::Call::Call() /usr/include/grpcpp/impl/call.h:42 (x+0x1)"


class OwnRacesTest(unittest.TestCase):
    def test_ours_only_if_both_accesses_are(self):
        for first, second, expected in [(OURS, LAMBDA, True), (OURS, LIBRARY, False),
                                        (TEMPLATE, OURS, False), (LIBRARY, TEMPLATE, False)]:
            report = RACE.format(first=first, second=second)
            self.assertEqual(own_races.ours(report), expected, report)


if __name__ == "__main__":
    unittest.main()
