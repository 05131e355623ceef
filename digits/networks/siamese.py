# Siamese network: learns the distance between two images, so that new classes can be recognized without
# retraining.
#
# Designed for small images, such as 28x28. The two images of a pair are stacked along the channels:
# 28x28x2 for grayscale. Labels are 1 for matching pairs and 0 for others. The output is the distance of
# each pair.
# Recommended settings: Adam, learning rate 0.001, batches of 64, 10 epochs, no mean subtraction.
#
# paper: Chopra, Hadsell and LeCun, 2005, “Learning a Similarity Metric Discriminatively”.
# settings: solver_type=ADAM learning_rate=0.001 lr_policy=fixed batch_size=64 train_epochs=10 use_mean=none
# kinds: image-pairs

import keras
from keras import layers

# The size of the embedding of an image.
EMBEDDING = 16

# The margin: images of different classes are pushed apart until their distance is this large.
MARGIN = 1.0


class UserModel(Tower):
    @model_property
    def inference(self):
        # One network, used twice: both images share its weights.
        embed = keras.Sequential(
            [
                layers.Conv2D(20, 5, activation="relu", kernel_initializer="he_normal", name="conv1"),
                layers.MaxPooling2D(2),
                layers.Conv2D(50, 5, activation="relu", kernel_initializer="he_normal", name="conv2"),
                layers.MaxPooling2D(2),
                layers.Flatten(),
                layers.Dense(500, activation="relu", kernel_initializer="he_normal", name="fc"),
                layers.Dense(EMBEDDING, name="embedding"),
            ],
            name="embed",
        )
        left, right = tf.split(self.x / 255.0, 2, axis=3)
        # Distances are computed in float32, also in mixed precision.
        self.left = tf.cast(embed(left), tf.float32)
        self.right = tf.cast(embed(right), tf.float32)
        # Avoid the infinite gradient of the square root at 0.
        return tf.sqrt(tf.reduce_sum(tf.square(self.left - self.right), axis=1, keepdims=True) + 1e-6)

    @model_property
    def loss(self):
        together = tf.reshape(self.y, [-1])
        guessed = tf.cast(self.inference[:, 0] < MARGIN / 2, together.dtype)
        right = tf.cast(tf.equal(guessed, together), tf.float32)
        self.summaries.append(tf.summary.scalar("accuracy", tf.reduce_mean(right)))
        return digits.contrastive_loss(self.left, self.right, together, margin=MARGIN)
