"""Where a model is wrong, if the test of all errors together says no more than that it is."""

import jax
import numpy as np

from calibjax import distributions
from calibjax.distributions import Ensemble, Quantiles
from calibjax.distributions.draws import undrawn
from calibjax.evaluation.data import LEVEL, Data, Part
from calibjax.evaluation.entries import Entry, Section
from calibjax.evaluation.findings import PlaceError
from calibjax.evaluation.number_views import of_levels, of_members, of_quantiles
from calibjax.evaluation.overall import Choice
from calibjax.evaluation.places import Place, find_places
from calibjax.evaluation.views import Search, of_classes

NUM_REDRAWS = 999
_SHOWN = 3  # places that are named
_NUM_DRAWS = 20  # from each prediction that has no distribution function, or is of vectors
_REMARK = (
    "Of {number} places (events in regions of the predictions), those whose frequencies differ "
    "most from the predicted ones, in standard errors. They were searched for because a test "
    "rejects and no sentence would have named an error. The p-values are exact and adjusted for "
    "all places that were looked at. They need no adjustment for the other tests: the probability "
    "that a calibrated model gets this table at all is at most 5 %."
)


def where_wrong(data: Data, chosen: Choice | None) -> Part:
    """The places with the largest errors."""
    search = _search(data, chosen)
    if search is None or not search.views:
        return Part()
    seed = np.asarray(jax.random.key_data(data.at(13))).ravel()
    found = find_places(search.views, search.draw, seed, NUM_REDRAWS)
    if not found.worst:
        return Part()
    shown = [place for place in found.worst if place.pvalue <= LEVEL][:_SHOWN]
    shown = shown or [found.worst[0]]
    entries = tuple(entry for place in shown for entry in _entries(data, place))
    section = Section("Where it is wrong", entries, _REMARK.format(number=found.number))
    findings = {"places": tuple(_error(place) for place in shown)}
    return Part((section,), findings)


def _search(data: Data, chosen: Choice | None) -> Search | None:
    """Where to look: in classes, by distribution functions, or among members of ensembles."""
    if data.is_of_classes:
        return of_classes(data)
    inner = undrawn(data.predictions)
    if isinstance(inner, Ensemble):
        return of_members(data, data.known(inner.values), "predictions")
    if isinstance(inner, Quantiles):
        return of_quantiles(data, inner)
    if data.pit is not None:
        return of_levels(data, inner)
    if chosen is not None and isinstance(drawn := chosen.predictions.value, Ensemble):
        return of_members(data, data.known(drawn.values), chosen.predictions.text)
    draws = distributions.monte_carlo(data.at(12), inner, _NUM_DRAWS).draws
    call = f"distributions.monte_carlo(jax.random.fold_in(key, 12), predictions, {_NUM_DRAWS})"
    return of_members(data, data.known(draws.values), f"{call}.draws")


def _error(place: Place) -> PlaceError:
    """What a sentence says of a place."""
    return PlaceError(
        event=place.view.event_words[place.event],
        region=place.view.region_words[place.region],
        number=place.number,
        predicted=place.observed - place.view.factor * (place.observed - place.predicted),
        observed=place.observed,
        pvalue=place.pvalue,
    )


def _entries(data: Data, place: Place) -> tuple[Entry, Entry, Entry]:
    """Both frequencies, and their difference with its p-value."""
    error = _error(place)
    observed, predicted = place.view.event_calls[place.event]
    inside = place.view.region_calls[place.region]
    rows = f"[{inside}]" if inside else ""
    function = "jnp.average" if data.has_weights else "jnp.mean"
    more = f", weights=weights{rows}" if data.has_weights else ""
    calls = [f"{function}(({call}){rows}{more})" for call in (observed, predicted)]
    name = error.event + (f", {error.region}" if error.region else "")
    chance = place.view.factor * place.chance
    return (
        Entry(f"observed: {name}", error.observed, function=calls[0]),
        Entry(f"predicted: {name}", error.predicted, function=calls[1]),
        Entry(
            f"observed - predicted: {name}",
            error.observed - error.predicted,
            by_chance=(-chance, chance),
            pvalue=place.exact_pvalue,
            function=f"{calls[0]} - {calls[1]}",
        ),
    )
