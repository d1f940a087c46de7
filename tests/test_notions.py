"""The lattice of scopes: what implies what, read from words and back, and each way of claiming more than was shown refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utfproof.certificates.dimensions import dimension_certificate
from utfproof.certificates.identities import identity_certificate
from utfproof.certificates.prover import certify
from utfproof.certificates.scope import scope_of
from utfproof.shapes import Shape
from utfproof.util.notions import MODELS, WITH, Attention, Extent, Hosts, Notion, Scope, Targets, Tying

M, A, F, S = Notion.MATCHING, Notion.ATTENTION_MATCHING, Notion.FUNCTIONAL, Notion.SHARED_ATTENTION
CONDITIONS = ("invertible M^(l,0)", "L = 2")


def targets_():
    return st.builds(
        Targets,
        st.sampled_from(Extent),
        st.sampled_from(Tying),
        st.frozensets(st.sampled_from(WITH), max_size=2),
        st.frozensets(st.sampled_from(CONDITIONS), max_size=2),
    )


def scopes():
    return st.builds(
        lambda model, targets, hosts, attention: Scope(model[0], targets, hosts, model[1], attention),
        st.sampled_from(MODELS),
        targets_(),
        st.builds(Hosts, st.booleans(), st.booleans()),
        st.one_of(st.none(), st.sampled_from(Attention)),
    )


@given(targets_())
def test_words_are_read_back(targets):
    assert Targets.parse(str(targets)) == targets


@given(scopes(), scopes(), scopes(), st.integers(1, 3))
def test_implication_is_an_order(a, b, c, layers):
    assert a.implies(a, layers)
    if a.implies(b, layers) and b.implies(c, layers):
        assert a.implies(c, layers)


@given(scopes(), scopes(), st.integers(1, 3))
def test_what_is_refuted_and_what_is_served_go_opposite_ways(a, b, layers):
    assert a.supports(b, universal=True, layers=layers) == b.supports(a, universal=False, layers=layers)


@pytest.mark.parametrize("spelt", ["shared attention", "shared-attention"])
def test_a_notion_is_asked_for_by_its_word_or_as_documents_have_it(cli, spelt):
    shape = ["-H", 2, "-L", 2, "-d", 1, "--d-in", 1]
    code, out, _ = cli("certify", "register", *shape, "--notion", spelt, "-o", "register.json")
    assert (code, "universal by shared attention" in out) == (0, True)
    assert cli("frontier", "-H", 2, "-L", 2, "--notion", spelt)[0] == 0
    with pytest.raises(ValueError, match="not a valid"):
        Notion.asked(spelt.replace("shared", "Shared"))
    assert {Notion.asked(notion.word) for notion in Notion} == {*Notion}
    with pytest.raises(ValueError, match="not a valid"):
        Notion("shared-attention")  # as a document must not have it


@pytest.mark.parametrize(
    "text",
    [
        "",
        "all",
        "untied",
        "every untied",
        "all untied, with wings",
        "all tied with biases",
        "almost all looped",
        "all untied, if ",
        "all normalised untied",
    ],
)
def test_words_that_are_not_understood(text):
    with pytest.raises(ValueError, match=r"not understood|none of"):
        Targets.parse(text)


@pytest.mark.parametrize(
    ("strong", "weak", "layers", "implied"),
    [
        ("all untied", "almost all untied", 2, True),
        ("almost all untied", "all untied", 2, False),
        ("all untied", "all tied", 2, True),
        ("all tied", "all untied", 2, False),
        ("all tied", "all untied", 1, True),
        ("almost all untied", "almost all tied", 2, False),
        ("almost all untied", "almost all tied", 1, True),
        ("all untied", "almost all tied", 2, True),
        ("untied with invertible M^(l,0)", "almost all untied", 2, True),
        ("untied with invertible M^(l,0)", "almost all tied", 2, True),
        ("untied with invertible M^(l,0)", "all untied", 2, False),
        ("all untied, if L = 2", "almost all untied", 2, False),
        ("all untied", "all untied, if grouped", 2, True),
        ("all untied, if grouped", "all untied", 2, False),
        ("all untied, with biases", "all untied", 2, True),
        ("almost all untied, with biases", "almost all untied", 2, False),
        ("all untied", "all untied, with biases", 2, False),
        ("all untied", "some untied", 2, True),
        ("almost all untied", "some untied", 2, False),
        ("some untied", "almost all untied", 2, False),
    ],
)
def test_classes_of_targets(strong, weak, layers, implied):
    assert Targets.parse(strong).implies(Targets.parse(weak), layers) is implied


def _scope(notion, targets, hosts="any", free=None):
    return Scope(notion, Targets.parse(targets), Hosts.parse(hosts), free)


SHAPE = Shape(2, 2, 2, 2)
TIED_HOST = certify("tied", SHAPE)
QUERY = identity_certificate("shared-query", SHAPE)
BELOW = dimension_certificate(SHAPE, 19, notion=A, targets="generic untied")
BELOW_ALL = dimension_certificate(SHAPE, 19, notion=M)
PRINTED = certify("printed-looped", Shape(2, 1, 1, 2))


@pytest.mark.parametrize(
    ("certificate", "wanted", "supported"),
    [
        (TIED_HOST, _scope(M, "all untied"), True),
        (TIED_HOST, _scope(F, "all untied", "tied"), True),
        (TIED_HOST, _scope(S, "almost all tied", free="E and U"), True),
        (QUERY, _scope(A, "almost all untied"), True),
        (QUERY, _scope(A, "all untied"), False),  # almost all are not all
        (QUERY, _scope(M, "almost all untied"), False),  # logits are not queries and keys
        (BELOW, _scope(A, "all untied"), True),
        (BELOW, _scope(M, "almost all untied"), True),
        (BELOW, _scope(F, "almost all untied"), False),  # "not by logits" is not "not at all"
        (BELOW, _scope(A, "almost all tied"), False),  # tied targets are fewer
        (BELOW_ALL, _scope(M, "almost all untied"), False),  # a host that serves almost all need not serve all
        (BELOW_ALL, _scope(M, "all untied, if grouped"), False),
        (BELOW_ALL, _scope(M, "all untied", "tied"), True),
        (PRINTED, _scope(M, "all untied", "examined"), True),
        (PRINTED, _scope(M, "all untied"), False),  # one host that fails is not every host
    ],
)
def test_certificates_support_what_they_imply(certificate, wanted, supported):
    layers = int(certificate.document["shape"]["layers"])
    assert scope_of(certificate.document).supports(wanted, universal=certificate.universal, layers=layers) is supported
