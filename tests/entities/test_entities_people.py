"""People: names and roles from a small notebook, and what a request means by them."""

import pytest

from pace_dspy.entities import People

FACTS = (
    ("f1", "Nadia's brother-in-law Rui fishes for squid at night."),
    ("f2", "Rui's wife, Teresa Lobo, cannot stand the smell of squid."),
    ("f3", "Mr. Voss, who teaches the twins' violin class, is away until June."),
    ("f4", "On Sunday her sister Clara moved to Ostrava."),
    ("f5", "Hassan Bey, the landlord, wants the rent by noon."),
    ("f6", "Olga Prins, our usual caterer, uses peanut oil in everything."),
    ("f7", "Nadia met the football coach Bruno Sala at the gate."),
    ("f8", "Bruno Sala trains on Tuesdays at Hilltop Park."),
    ("f9", "Nadia asked Ilse Grauw for a ladder."),
    ("f10", "Ilse Kern gave Nadia a cactus."),
    ("f11", "Kern has three ladders."),
    ("f12", "Piet, the weekend hand at the shop, is seventeen."),
    ("f13", "Nadia Haddad keeps bees."),
    ("f14", "Aunt Wilma told Nadia a story about Kern."),
    ("f15", "Emma Stone has baked for Nadia since 2020, as her one pastry chef."),
)


@pytest.fixture(scope="module")
def people():
    return People.build(FACTS, "Nadia Haddad")


@pytest.mark.parametrize(
    ("request_text", "text", "names", "doc_ids"),
    [
        ("Invite my brother-in-law to dinner.", "my brother-in-law", ("Rui",), ("f1",)),
        ("Tell my sister about the party.", "my sister", ("Clara",), ("f4",)),
        ("Call our landlord tomorrow.", "our landlord", ("Hassan Bey",), ("f5",)),
        ("Order from our usual caterer for Friday.", "our usual caterer", ("Olga Prins",), ("f6",)),
        ("Thank the kids' coach.", "the kids' coach", ("Bruno Sala",), ("f7",)),
        ("Ask the kids' violin teacher for a slot.", "the kids' violin teacher", ("Mr Voss",), ("f3",)),
        ("Offer a shift to our weekend helper.", "our weekend helper", ("Piet",), ("f12",)),
        ("Send a card to my aunt.", "my aunt", ("Aunt Wilma",), ("f14",)),
        ("Ask our pastry chef for a cake.", "our pastry chef", ("Emma Stone",), ("f15",)),
    ],
)
def test_description_leads_to_the_fact_that_names_the_person(people, request_text, text, names, doc_ids):
    (mention,) = people.mentions(request_text)
    assert (mention.kind, mention.text, mention.names, mention.doc_ids) == ("relation", text, names, doc_ids)


def test_chain_of_relations_builds_on_its_first_part(people):
    first, second = people.mentions("Cook squid for my brother-in-law's wife.")
    assert (first.text, first.names) == ("my brother-in-law", ("Rui",))
    assert (second.text, second.names, second.doc_ids) == ("my brother-in-law's wife", ("Teresa Lobo",), ("f2",))


def test_relation_of_a_named_person_is_not_mine(people):
    assert people.mentions("Call my wife.") == ()
    assert [(m.kind, m.names) for m in people.mentions("Call Rui's wife.")] == [
        ("name", ("Rui",)),
        ("relation", ("Teresa Lobo",)),
    ]


def test_named_person_brings_every_fact_with_the_name(people):
    (mention,) = people.mentions("Book a table with Bruno Sala.")
    assert (mention.kind, mention.names, mention.doc_ids) == ("name", ("Bruno Sala",), ("f7", "f8"))


def test_first_name_stands_for_all_who_have_it_but_a_full_name_only_for_one(people):
    assert people.facts_of("Ilse") == ("f9", "f10")
    assert people.facts_of("Ilse Grauw") == ("f9",)
    assert people.facts_of("Ilse Kern") == ("f10", "f11", "f14")  # only one full name has the part "Kern"
    assert people.facts_of("Mr. Voss") == ("f3",)
    assert people.facts_of("Nobody Known") == people.facts_of("") == ()


def test_owner_is_recognised_given_or_from_most_facts(people):
    (mention,) = people.mentions("Book Nadia a massage.")
    assert mention.is_owner
    unnamed = People.build(FACTS)
    assert unnamed.owner == {"nadia"}
    assert unnamed.mentions("Book Nadia a massage.")[0].is_owner
    assert not People.build(FACTS[:4]).owner  # too few facts to tell


def test_places_are_no_persons_and_titles_no_part_of_a_name(people):
    assert "Hilltop Park" not in people.names
    assert "Ostrava" not in people.names
    assert people.mentions("Book Hilltop Park for Sunday.") == ()
    assert {"Rui", "Teresa Lobo", "Mr Voss", "Clara", "Bruno Sala"} <= set(people.names)


@pytest.mark.parametrize("request_text", ["", "   ", "My.", "the", "our usual", "my brother-in-law's", "Order a lamp."])
def test_request_without_known_people_gives_none_or_the_base(people, request_text):
    assert [m.text for m in people.mentions(request_text)] in ([], ["my brother-in-law"])


def test_positions_follow_the_order_given(people):
    assert people.positions(["f3", "f1"]) == [2, 0]
    with pytest.raises(KeyError):
        people.positions(["f99"])
