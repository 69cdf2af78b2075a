"""The words the built-in suites are written in: closed lists, all known to the reference agent."""

from __future__ import annotations

VALUES = tuple(
    """amber anchor apple arrow aspen autumn badge bamboo basil beacon birch bishop blossom bottle
    branch bridge bronze brook button cabin cactus camel candle canyon carbon castle cedar cherry
    cinder circle cliff clover cobalt comet copper coral cotton cradle crater crimson crystal dagger
    dawn delta denim desert diamond dolphin dragon drum dune eagle ebony echo ember emerald falcon
    feather fern fiddle flame flint forest fossil fountain fox galaxy garnet ginger glacier granite
    grape gravel grove harbor harvest hawk hazel helmet heron hollow honey horizon indigo iris iron
    island ivory jade jasmine jasper jungle juniper kettle kite lagoon lantern laurel lava lemon
    lilac linen lion lotus lunar magnet mango maple marble meadow melon mercury meteor mint mirror
    moss mustang nebula needle nickel north nova oak oasis ocean olive onyx opal orange orbit orchid
    otter oxford oyster paddle palm panda paper pearl pebble pepper phoenix pine planet plum polar
    prairie prism pumpkin quartz quill rabbit raven reef ribbon river robin rocket rose ruby saddle
    sage salmon sandal sapphire scarlet shadow silver sky slate sparrow spruce star stone summit
    sunset tango tiger timber topaz tulip tundra turtle umber valley velvet violet walnut willow
    winter wolf zephyr zinc""".split()
)

NOISE = tuple(
    """about after again almost along also always around because before below between both broad
    careful clean clear close common daily during early either enough every exact fair fast few fine
    first former full further general given good grand great half heavy high inner just large late
    light likely little local long loose low main many mild minor modern more most much narrow near
    neat new nice often old only open outer plain quick quiet rare recent rough same short simple
    since slow small smooth soft some steady still strong such sure then there thick thin through
    tight toward under until upper usual very warm weak well while whole wide with within
    young""".split()
)
