"""Configs as Python objects print the text that the programs read."""

import unittest

import leeway
from leeway.config import Config, Evaluate, LinearRegression, LocalRule, Model, Phase, Probe, ServerOptimizer, Train


class ConfigTest(unittest.TestCase):
    def test_prints_what_was_set_and_nothing_else(self):
        config = Config(seed=7, weighting="EXAMPLES", model=Model(file="initial.safetensors"), phases=[
            Phase(train=Train(rounds=3, local=LocalRule(step_size=1e-5, steps=2), drift_off=True, probe_at=[1, 3],
                              server=ServerOptimizer(momentum=0.9, nesterov=True), metrics=["auc"]))])
        self.assertEqual(str(config).split(), """
            seed: 7 model { file: "initial.safetensors" } weighting: EXAMPLES
            phases { train { rounds: 3 local { step_size: 1e-05 steps: 2 } server { momentum: 0.9 nesterov: true }
            drift_off: true probe_at: 1 probe_at: 3 metrics: "auc" } }""".split())

    def test_what_a_choice_may_be_is_given_as_it_is(self):
        short = Config(model=LinearRegression(l2=1, intercept=False), phases=[Evaluate(), Probe(point="CURRENT", steps=[1])])
        long = Config(model=Model(linear_regression=LinearRegression(l2=1, intercept=False)),
                      phases=[Phase(evaluate=Evaluate()), Phase(probe=Probe(point="CURRENT", steps=[1]))])
        self.assertEqual(str(short), str(long))
        self.assertIn("intercept: false", str(short))
        self.assertIs(leeway.Config, Config)

    def test_texts_are_quoted(self):
        self.assertEqual(str(Config(name='a "b" \\ \n ä')), 'name: "a \\042b\\042 \\134 \\012 \\303\\244"')

    def test_what_is_no_such_value_is_named(self):
        for message, words in ((Train(rounds=-1), "Train.rounds is -1; expected a whole number"),
                               (Train(rounds=2.5), "Train.rounds is 2.5; expected a whole number"),
                               (Train(rounds=True), "Train.rounds is True; expected a whole number"),
                               (LocalRule(step_size="big"), "LocalRule.step_size is 'big'; expected a number"),
                               (Train(drift_off=1), "Train.drift_off is 1; expected True or False"),
                               (Probe(point="HERE"), "Probe.point is 'HERE'; expected one of .*INITIAL"),
                               (Train(metrics=[3]), "Train.metrics is 3; expected a text"),
                               (Config(phases=[LocalRule()]), "RunConfig.phases is LocalRule; expected Phase")):
            with self.assertRaisesRegex(leeway.Error, words):
                str(message)
        with self.assertRaises(TypeError):
            Train(round=3)


if __name__ == "__main__":
    unittest.main()
