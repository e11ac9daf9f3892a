"""Nothing raises, whatever the notes and the request hold."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pace_dspy.entities import FactGraph, People, TermLinks, Vocabulary, constraint_strength, people_channel
from pace_dspy.retrieval import KnnGraph

PIECES = st.sampled_from(
    ["Ines", "'s", "’s", "sister", "the", "my", "our", ",", ".", "Dr.", "who", "as", "of", "is", "&", "Pell", "12 May"]
)
NOTES = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=12).map(" ".join))


@settings(max_examples=150, deadline=None)
@given(st.lists(NOTES, max_size=6), NOTES, st.one_of(st.none(), NOTES))
@example([], "", None)
@example(["x"], "my x", "")
@example(["Ines"] * 3, "Ines's Ines", "Ines")
@example(["alpha", "beta", "gamma"], "delta", None)
def test_any_text(texts, request_text, persona):
    n = len(texts)
    people = People.build([(str(at), text) for at, text in enumerate(texts)], persona)
    known = {str(at) for at in range(n)}
    for mention in people.mentions(request_text):
        assert mention.names or mention.is_owner or mention.kind == "name"
        assert set(mention.doc_ids) <= known
    vocabulary = Vocabulary.build(texts)
    terms = vocabulary.salient_terms(request_text)
    assert [t.idf for t in terms] == sorted((t.idf for t in terms), reverse=True)
    assert all(t.idf >= 0 and t.doc_freq <= n for t in terms)
    assert 0 <= constraint_strength(request_text) <= 3
    assert people_channel(people, request_text, np.zeros(n, dtype=np.float32)) == sorted(
        people_channel(people, request_text, np.zeros(n, dtype=np.float32))
    )
    links = TermLinks.build(vocabulary)
    matrix = links.matrix.toarray()
    np.testing.assert_array_equal(matrix, matrix.T)
    assert (matrix >= 0).all()
    assert not matrix.diagonal().any()
    vectors = np.tile(np.array([[1.0, 0.0]], dtype=np.float32), (n, 1)).reshape(n, 2)
    graph = FactGraph.build("hybrid", KnnGraph.build([str(at) for at in range(n)], vectors, 10), links)
    if n:
        reached = graph.walk({n - 1: 1.0}, n)
        assert len({fact.position for fact in reached}) == len(reached)
        assert all(0 < fact.score <= 1.00001 for fact in reached)
