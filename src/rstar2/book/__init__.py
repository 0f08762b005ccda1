"""What the chapters draw with: figures, sliders, exercises, trajectories.

A chapter starts with ``style.use()`` and shows each picture through one of

* :func:`~rstar2.book.figure.figure`: a still figure with caption and provenance,
* :func:`~rstar2.book.explore.explore`: the same under a slider,
* :func:`~rstar2.book.rendered.show_table`: a table,
* :func:`~rstar2.book.trajectory_view.show_trajectory`: a rollout, turn by turn,
* :class:`~rstar2.book.exercise.Exercise`: a question that checks its answer.
"""
