"""The bounds of the paper's analysis as functions, in the form in which they hold.

Each module has the bounds of one part: what the sketch loses, sums of self-normalised norms, the
chain that leads to the confidence region, and the regret. Where the printed form is wrong or can be
sharpened, the docstring says so, and the notebook that it names has the proof.
"""
